#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/phased_stride4.hpp"

#include <algorithm>

#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/kernel.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/launch.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand>
void pack(const ConvProblem& problem, const UnitSteps& steps, const void* w, void* packed, cudaStream_t stream) {
  using T = typename Operand::Source;
  auto* header = static_cast<OperandHeader*>(packed);
  CHECK_CUDA(cudaMemsetAsync(packed, 0, sizeof(OperandHeader), stream));
  const std::int64_t blocks = (steps.packed_bytes / 16 + kLargestThreads - 1) / kLargestThreads;
  units_pack_kernel<Operand><<<static_cast<unsigned>(blocks), kLargestThreads, 0, stream>>>(
      problem, steps, unit_chunks(kUnitPatterns[steps.pattern]), static_cast<const T*>(w), header,
      reinterpret_cast<uint4*>(header + 1));
  check_launch("conv tensor_core: units, weights");
}

template <class Operand, int kStride, int kPattern>
void launch(const Gather& call, const UnitSteps& steps) {
  using T = typename Operand::Source;
  const ConvProblem problem = call.problem;
  const auto packed = call.weights.packed(
      unit_weight_key(problem, steps), sizeof(OperandHeader) + static_cast<std::size_t>(steps.packed_bytes), call.device,
      call.stream, [problem, steps](const void* w, void* to, cudaStream_t on) { pack<Operand>(problem, steps, w, to, on); });
  auto* kernel = units_kernel<Operand, kStride, kPattern>;
  const int shared = steps.shared_bytes + kUnitAlignment;
  allow_shared_memory(kernel, shared);
  const WideExact<T> exact{problem, true,   static_cast<const T*>(call.source), static_cast<const T*>(call.weights.data()),
                           nullptr, nullptr};
  launch_behind(kernel, steps.grid, kUnitThreads, static_cast<std::size_t>(shared), call.stream, call.form, steps,
                call.epilogue,
                unit_source_map(problem, call.source, unit_depths(kUnitPatterns[kPattern]) * kUnitRows, kUnitWidth),
                static_cast<const T*>(call.bias), static_cast<T*>(call.out), packed->template as<OperandHeader>(), exact);
  check_launch("conv tensor_core: units");
}

template <class Operand>
void gather_as(const Gather& call) {
  const UnitSteps steps = units_steps(call.problem, properties(call.device));
  if (steps.pattern == 1) return launch<Operand, 4, 1>(call, steps);
  if (call.problem.S == 4) return launch<Operand, 4, 0>(call, steps);
  return launch<Operand, 8, 0>(call, steps);
}

}  // namespace

UnitSteps units_steps(const ConvProblem& problem, const DeviceProperties& gpu) {
  return make_unit_steps(problem, gpu.sm_count, gpu.shared_bytes_per_block - kUnitAlignment);
}

void units_gather(const Gather& call) {
  if (call.problem.dtype == DType::f32) return gather_split_units(call, units_steps(call.problem, properties(call.device)));
  if (call.problem.dtype == DType::f16) return gather_as<WideHalf>(call);
  return gather_as<WideBrain>(call);
}

}  // namespace polyphase::cuda::tensor_core
