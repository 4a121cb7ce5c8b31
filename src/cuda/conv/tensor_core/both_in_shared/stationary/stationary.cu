#include "cuda/conv/tensor_core/both_in_shared/stationary/stationary.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/both_in_shared/stationary/launch.cuh"

namespace polyphase::cuda::tensor_core {

ResidentSteps resident_steps(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* source,
                             const void* out, const DeviceProperties& gpu) {
  const TapGemm form = make_tap_gemm(problem, direction);
  if (problem.dtype != DType::f32) return resident_steps_of<Half>(form, source, out, gpu);
  return precision == Precision::tf32 ? resident_steps_of<OneHalf>(form, source, out, gpu)
                                      : resident_steps_of<SplitHalf>(form, source, out, gpu);
}

void resident_gather(const Gather& call) {
  if (call.epilogue.is_late()) return resident_gather_late(call);
  gather_resident<false>(call);
}

}  // namespace polyphase::cuda::tensor_core
