#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/f32_kernel.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

void pack(const ConvProblem& problem, const UnitSteps& steps, const void* w, void* packed, cudaStream_t stream) {
  auto* header = static_cast<OperandHeader*>(packed);
  const auto* weights = static_cast<const float*>(w);
  CHECK_CUDA(cudaMemsetAsync(packed, 0, sizeof(OperandHeader), stream));
  const std::int64_t count = problem.C_in * (problem.C_out / problem.G) * problem.K;
  largest_kernel<<<static_cast<unsigned>(largest_blocks(count)), kLargestThreads, 0, stream>>>(weights, count, header);
  check_launch("conv tensor_core: units, largest weight");
  const std::int64_t blocks = (steps.packed_bytes / 32 + kLargestThreads - 1) / kLargestThreads;
  split_units_pack_kernel<<<static_cast<unsigned>(blocks), kLargestThreads, 0, stream>>>(
      problem, steps, split_unit_chunks(kUnitPatterns[steps.pattern]), weights, header, reinterpret_cast<uint4*>(header + 1));
  check_launch("conv tensor_core: units, split weights");
}

}  // namespace

void gather_split_units(const Gather& call, const UnitSteps& steps) {
  const ConvProblem problem = call.problem;
  const auto packed = call.weights.packed(
      unit_weight_key(problem, steps), sizeof(OperandHeader) + static_cast<std::size_t>(steps.packed_bytes), call.device,
      call.stream, [problem, steps](const void* w, void* to, cudaStream_t on) { pack(problem, steps, w, to, on); });
  const Sampled<WideSplit> source(call);
  constexpr int kPattern = 1;  // the only one that steps have
  const WideExact<float> exact{
      problem, true,           static_cast<const float*>(call.source), static_cast<const float*>(call.weights.data()),
      nullptr, source.header()};
  source.launch(split_units_kernel<4, kPattern>, steps.grid, kSplitUnitThreads, steps.shared_bytes + kUnitAlignment, call.form,
                steps, call.epilogue, unit_source_map(problem, call.source, kUnitRows, kSplitUnitWidth),
                static_cast<const float*>(call.bias), static_cast<float*>(call.out), packed->template as<OperandHeader>(),
                exact);
  check_launch("conv tensor_core: split units");
}

}  // namespace polyphase::cuda::tensor_core
