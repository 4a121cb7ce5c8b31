#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/recompute/wide.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/f32_kernel.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

void pack(const ConvProblem& problem, const Phased4Tiling& tiling, const void* w, void* packed, cudaStream_t stream) {
  auto* header = static_cast<OperandHeader*>(packed);
  const auto* weights = static_cast<const float*>(w);
  begin_weight_words<SplitF16>(problem, weights, &header->largest, stream);
  const std::int64_t blocks = (tiling.packed_bytes / 32 + kLargestThreads - 1) / kLargestThreads;
  phased_stride4_f32_pack_kernel<<<static_cast<unsigned>(blocks), kLargestThreads, 0, stream>>>(
      problem, tiling, f32_unit_chunks(kPhased4Patterns[tiling.pattern]), weights, header,
      reinterpret_cast<uint4*>(header + 1));
  check_launch("conv tensor_core: phased_stride4, split weights");
}

}  // namespace

void phased_stride4_gather_f32(const Gather& call, const Phased4Tiling& tiling) {
  const ConvProblem problem = call.problem;
  const auto packed = call.weights.packed(
      unit_weight_key(problem, tiling), sizeof(OperandHeader) + static_cast<std::size_t>(tiling.packed_bytes), call.device,
      call.stream, [problem, tiling](const void* w, void* to, cudaStream_t on) { pack(problem, tiling, w, to, on); });
  const WideGather wide(call);
  const Sampled<SplitF16> source(call, {}, wide.marks(&packed->template as<OperandHeader>()->small));
  constexpr int kPattern = 1;  // the only one that steps have
  const FlaggedSource<float> exact{wide.exact(), nullptr, source.header()};
  source.launch(phased_stride4_f32_kernel<4, kPattern>, tiling.grid, kPhased4F32Threads,
                tiling.shared_bytes + kPhased4Alignment, call.gemm, tiling, call.epilogue,
                unit_source_map(problem, call.source, kPhased4Rows, kPhased4F32Width), static_cast<const float*>(call.bias),
                static_cast<float*>(call.out), packed->template as<OperandHeader>(), exact);
  check_launch("conv tensor_core: split phased_stride4");
  wide.launch(source.header(), &packed->template as<OperandHeader>()->largest);
}

}  // namespace polyphase::cuda::tensor_core
