#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/phased_stride2.hpp"

#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/recompute/wide.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/kernel.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand>
void pack(const ConvProblem& problem, const Phased2Tiling& tiling, const void* w, void* packed, cudaStream_t stream) {
  using T = typename Operand::Source;
  auto* header = static_cast<OperandHeader*>(packed);
  const auto* weights = static_cast<const T*>(w);
  begin_weight_words<Operand>(problem, weights, &header->largest, stream);
  const std::int64_t blocks = (tiling.packed_bytes / 16 + kLargestThreads - 1) / kLargestThreads;
  phased_stride2_pack_kernel<Operand><<<static_cast<unsigned>(blocks), kLargestThreads, 0, stream>>>(
      make_tap_gemm(problem, ConvDirection::forward), tiling, problem, weights, header, reinterpret_cast<uint4*>(header + 1));
  check_launch("conv tensor_core: phased_stride2, weights");
}

/// Everything that the packing depends on except the weights.
PackingKey key_of(const ConvProblem& problem, const Phased2Tiling& tiling) {
  constexpr std::int64_t kPhased2Packing = -2;  // not a ConvDirection, which the preconverted kernel's keys have here
  return {static_cast<std::int64_t>(Algorithm::tensor_core),
          kPhased2Packing,
          static_cast<std::int64_t>(problem.dtype),
          tiling.parts,
          problem.C_in,
          problem.C_out,
          problem.G,
          problem.P_l % kPhased2Classes,
          tiling.channels};
}

template <class Operand, int kChannels>
void launch(const Gather& call, const Phased2Tiling& tiling) {
  using T = typename Operand::Source;
  const ConvProblem problem = call.problem;
  const TapGemm& gemm = call.gemm;
  const auto packed = call.weights.packed(
      key_of(problem, tiling), sizeof(OperandHeader) + static_cast<std::size_t>(tiling.packed_bytes), call.device, call.stream,
      [problem, tiling](const void* w, void* to, cudaStream_t on) { pack<Operand>(problem, tiling, w, to, on); });
  const auto* weights = packed->template as<OperandHeader>();
  const auto* source = static_cast<const T*>(call.source);
  const WideGather wide(call);
  const Sampled<Operand> sampled(call, {}, wide.marks(&weights->small));
  ExactSource<T> exact = exact_source<T>(call);
  exact.wide = wide.exact().wide;
  sampled.launch(phased_stride2_kernel<Operand, kChannels>, tiling.grid, kPhased2Threads, tiling.shared_bytes, gemm, tiling,
                 call.epilogue, source, static_cast<const T*>(call.bias), static_cast<T*>(call.out), sampled.header(), weights,
                 exact);
  check_launch("conv tensor_core: phased_stride2");
  wide.launch(sampled.header(), &weights->largest);
}

template <class Operand>
void gather_stride2(const Gather& call) {
  const DeviceProperties& gpu = properties(call.device);
  const Phased2Tiling tiling = best_phased2_tiling(call.problem, Operand::kParts, gpu.sm_count, gpu.shared_bytes_per_block);
  switch (tiling.channels) {
    case 32:
      return launch<Operand, 32>(call, tiling);
    case 64:
      return launch<Operand, 64>(call, tiling);
    default:
      if constexpr (!Operand::kSplit)
        return tiling.channels == 96 ? launch<Operand, 96>(call, tiling) : launch<Operand, 128>(call, tiling);
  }
}

}  // namespace

void phased_stride2_gather(const Gather& call) {
  if (call.problem.dtype == DType::f16) return gather_stride2<F16>(call);
  if (call.problem.dtype == DType::bf16) return gather_stride2<Bf16>(call);
  if (call.precision == Precision::tf32) return gather_stride2<ScaledF16>(call);
  return gather_stride2<SplitF16>(call);
}

}  // namespace polyphase::cuda::tensor_core
