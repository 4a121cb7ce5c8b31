#include "cuda/conv/sm90/tensor_core_resident.cuh"

#include <ostream>

#include "cuda/conv/sm90/tensor_core_kept.cuh"
#include "cuda/conv/sm90/tensor_core_resident.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// Tiles of twice the positions where one part leaves room for them.
template <class Operand>
ResidentSteps steps_of(const TapGemm& form, const void* source, const DeviceProperties& gpu) {
  ResidentShape shape{256, Operand::kParts, sizeof(typename Operand::Source),
                      reinterpret_cast<std::uintptr_t>(source) % 4 == 0};
  if constexpr (Operand::kParts == 1) {
    const ResidentSteps steps = make_resident_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
    if (steps.count > 0) return steps;
  }
  shape.positions = 128;
  return make_resident_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

template <class Operand>
auto kernel_of(const ResidentSteps& steps) {
  constexpr bool kMayPair = sizeof(typename Operand::Source) == 2;
  if constexpr (Operand::kParts == 2)
    return resident_kernel<Operand, false, 128>;
  else
    return steps.positions == 256 ? resident_kernel<Operand, kMayPair, 256> : resident_kernel<Operand, false, 128>;
}

template <class Operand>
void launch(const Gather& call) {
  using T = typename Operand::Source;
  const ResidentSteps steps = steps_of<Operand>(call.form, call.source, properties(call.device));
  const auto packed = kept_weights<Operand>(call, steps, kResidentColumns);
  const Sampled<Operand> sampled(call);
  sampled.launch(kernel_of<Operand>(steps), steps.grid, kResidentThreads, steps.shared_bytes, call.form, steps, call.epilogue,
                 static_cast<const T*>(call.source), packed->template as<unsigned char>(), static_cast<const T*>(call.bias),
                 static_cast<T*>(call.out), sampled.header(), sampled.exact());
  check_launch("conv tensor_core: resident");
}

}  // namespace

ResidentSteps resident_steps(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* source,
                             const DeviceProperties& gpu) {
  const TapGemm form = make_tap_gemm(problem, direction);
  if (problem.dtype != DType::f32) return steps_of<Half>(form, source, gpu);
  return precision == Precision::tf32 ? steps_of<OneHalf>(form, source, gpu) : steps_of<SplitHalf>(form, source, gpu);
}

void resident_gather(const Gather& call) {
  if (call.problem.dtype == DType::f16) return launch<Half>(call);
  if (call.problem.dtype == DType::bf16) return launch<Brain>(call);
  if (call.precision == Precision::tf32) return launch<OneHalf>(call);
  return launch<SplitHalf>(call);
}

}  // namespace polyphase::cuda::tensor_core
