#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/launch.cuh"

namespace polyphase::cuda::tensor_core {

bool narrow_activates(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* out, int device) {
  const TapGemm form = make_tap_gemm(problem, direction);
  if (problem.dtype == DType::f16 || problem.dtype == DType::bf16) return !narrow_steps_of<Half>(form, out, device).is_spread;
  if (precision == Precision::tf32) return !narrow_steps_of<OneHalf>(form, out, device).is_spread;
  return !narrow_steps_of<SplitHalf>(form, out, device).is_spread;
}

void narrow_gather(const Gather& call) {
  if (call.epilogue.is_late()) return narrow_gather_late(call);
  gather_narrow<false>(call);
}

}  // namespace polyphase::cuda::tensor_core
