#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/phased_stride2.hpp"

#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/kernel.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand>
void pack(const ConvProblem& problem, const PhaseSteps& steps, const void* w, void* packed, cudaStream_t stream) {
  using T = typename Operand::Source;
  auto* header = static_cast<OperandHeader*>(packed);
  const auto* weights = static_cast<const T*>(w);
  CHECK_CUDA(cudaMemsetAsync(packed, 0, sizeof(OperandHeader), stream));
  if constexpr (Operand::kScaled) {
    const std::int64_t count = problem.C_in * (problem.C_out / problem.G) * problem.K;
    largest_kernel<<<static_cast<unsigned>(largest_blocks(count)), kLargestThreads, 0, stream>>>(weights, count, header);
    check_launch("conv tensor_core: phases, largest weight");
  }
  const std::int64_t blocks = (steps.packed_bytes / 16 + kLargestThreads - 1) / kLargestThreads;
  phases_pack_kernel<Operand><<<static_cast<unsigned>(blocks), kLargestThreads, 0, stream>>>(
      make_tap_gemm(problem, ConvDirection::forward), steps, problem, weights, header, reinterpret_cast<uint4*>(header + 1));
  check_launch("conv tensor_core: phases, weights");
}

/// All that pack's result depends on but the weights.
FormKey key_of(const ConvProblem& problem, const PhaseSteps& steps) {
  constexpr std::int64_t kPhasesForm = -2;  // no ConvDirection, which the wide form's keys have here
  return {static_cast<std::int64_t>(Algorithm::tensor_core),
          kPhasesForm,
          static_cast<std::int64_t>(problem.dtype),
          problem.C_in,
          problem.C_out,
          problem.G,
          problem.P_l % kPhaseClasses,
          steps.channels};
}

template <class Operand, int kChannels>
void launch(const Gather& call, const PhaseSteps& steps) {
  using T = typename Operand::Source;
  const ConvProblem problem = call.problem;
  const TapGemm& form = call.form;
  const auto packed = call.weights.packed(
      key_of(problem, steps), sizeof(OperandHeader) + static_cast<std::size_t>(steps.packed_bytes), call.device, call.stream,
      [problem, steps](const void* w, void* to, cudaStream_t on) { pack<Operand>(problem, steps, w, to, on); });
  const auto* weights = packed->template as<OperandHeader>();
  const auto* source = static_cast<const T*>(call.source);
  const Sampled<Operand> sampled(call);
  const WideExact<T> exact{problem, true, source, static_cast<const T*>(call.weights.data()), nullptr, sampled.header()};
  sampled.launch(phases_kernel<Operand, kChannels>, steps.grid, kPhaseThreads, steps.shared_bytes, form, steps, call.epilogue,
                 source, static_cast<const T*>(call.bias), static_cast<T*>(call.out), sampled.header(), weights, exact);
  check_launch("conv tensor_core: phases");
}

template <class Operand>
void gather_as(const Gather& call) {
  const DeviceProperties& gpu = properties(call.device);
  const PhaseSteps steps = best_phase_steps(call.problem, gpu.sm_count, gpu.shared_bytes_per_block);
  switch (steps.channels) {
    case 32:
      return launch<Operand, 32>(call, steps);
    case 64:
      return launch<Operand, 64>(call, steps);
    case 96:
      return launch<Operand, 96>(call, steps);
    default:
      return launch<Operand, 128>(call, steps);
  }
}

}  // namespace

void phases_gather(const Gather& call) {
  if (call.problem.dtype == DType::f16) return gather_as<WideHalf>(call);
  if (call.problem.dtype == DType::bf16) return gather_as<WideBrain>(call);
  return gather_as<WideScaled>(call);
}

}  // namespace polyphase::cuda::tensor_core
