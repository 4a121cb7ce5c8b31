#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core.hpp"
#include "cuda/conv/sm90/tensor_core_resident.hpp"
#include "cuda/conv/sm90/tensor_core_wide.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {

bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision, int device) {
  const bool is_told = problem.dtype == DType::f32 && tells_sum(epilogue);
  if (uses_mma(properties(device).arch())) return is_told;
  // The wide form finishes sums in registers, and finds those to compute again before it does.
  if (wide_plan_that_pays(problem, direction, precision, device))
    return !epilogue.is_late() && epilogue.activation != Activation::snake;
  // Where weights stay in shared memory, stores have no time for more: 172 us with LeakyReLU, 133 apart
  // (docs/kernels/launches.md).
  return is_told && !resident_fits(problem, direction, precision, device);
}

}  // namespace polyphase::cuda::tensor_core
