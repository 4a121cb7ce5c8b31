#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/phased_stride4.hpp"

#include <algorithm>

#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/kernel.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/launch.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand>
void pack(const ConvProblem& problem, const Phased4Tiling& tiling, const void* w, void* packed, cudaStream_t stream) {
  using T = typename Operand::Source;
  auto* header = static_cast<OperandHeader*>(packed);
  begin_weight_words<Operand>(problem, static_cast<const T*>(w), &header->largest, stream);
  const std::int64_t blocks = (tiling.packed_bytes / 16 + kLargestThreads - 1) / kLargestThreads;
  phased_stride4_pack_kernel<Operand><<<static_cast<unsigned>(blocks), kLargestThreads, 0, stream>>>(
      problem, tiling, unit_chunks(kPhased4Patterns[tiling.pattern]), static_cast<const T*>(w), header,
      reinterpret_cast<uint4*>(header + 1));
  check_launch("conv tensor_core: phased_stride4, weights");
}

template <class Operand, int kStride, int kPattern>
void launch(const Gather& call, const Phased4Tiling& tiling) {
  using T = typename Operand::Source;
  const ConvProblem problem = call.problem;
  const auto packed = call.weights.packed(
      unit_weight_key(problem, tiling), sizeof(OperandHeader) + static_cast<std::size_t>(tiling.packed_bytes), call.device,
      call.stream, [problem, tiling](const void* w, void* to, cudaStream_t on) { pack<Operand>(problem, tiling, w, to, on); });
  auto* kernel = phased_stride4_kernel<Operand, kStride, kPattern>;
  const int shared = tiling.shared_bytes + kPhased4Alignment;
  allow_shared_memory(kernel, shared);
  launch_behind(
      kernel, tiling.grid, kPhased4Threads, static_cast<std::size_t>(shared), call.stream, call.gemm, tiling, call.epilogue,
      unit_source_map(problem, call.source, unit_depths(kPhased4Patterns[kPattern]) * kPhased4Rows, kPhased4Width),
      static_cast<const T*>(call.bias), static_cast<T*>(call.out), packed->template as<OperandHeader>(), exact_source<T>(call));
  check_launch("conv tensor_core: phased_stride4");
}

template <class Operand>
void gather_stride4(const Gather& call) {
  const Phased4Tiling tiling = phased_stride4_tiling(call.problem, properties(call.device));
  if (tiling.pattern == 1) return launch<Operand, 4, 1>(call, tiling);
  if (call.problem.S == 4) return launch<Operand, 4, 0>(call, tiling);
  return launch<Operand, 8, 0>(call, tiling);
}

}  // namespace

Phased4Tiling phased_stride4_tiling(const ConvProblem& problem, const DeviceProperties& gpu) {
  return make_phased4_tiling(problem, gpu.sm_count, gpu.shared_bytes_per_block - kPhased4Alignment);
}

void phased_stride4_gather(const Gather& call) {
  if (call.problem.dtype == DType::f32)
    return phased_stride4_gather_f32(call, phased_stride4_tiling(call.problem, properties(call.device)));
  if (call.problem.dtype == DType::f16) return gather_stride4<F16>(call);
  return gather_stride4<Bf16>(call);
}

}  // namespace polyphase::cuda::tensor_core
