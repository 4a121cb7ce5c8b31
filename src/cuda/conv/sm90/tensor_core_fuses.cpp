#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core.hpp"
#include "cuda/conv/sm90/tensor_core_wide.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {

bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision, int device) {
  if (problem.dtype == DType::f32 && tells_sum(epilogue)) return true;
  if (uses_mma(properties(device).arch())) return false;
  // The wide form finishes sums in registers, and finds those to compute again before it does.
  const bool is_in_registers = !epilogue.is_late() && epilogue.activation != Activation::snake;
  return is_in_registers && wide_plan_that_pays(problem, direction, precision, device).has_value();
}

}  // namespace polyphase::cuda::tensor_core
