#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core.hpp"
#include "cuda/conv/sm90/tensor_core_narrow.hpp"
#include "cuda/conv/sm90/tensor_core_phases.hpp"
#include "cuda/conv/sm90/tensor_core_resident.hpp"
#include "cuda/conv/sm90/tensor_core_resident_rows.hpp"
#include "cuda/conv/sm90/tensor_core_turned.hpp"
#include "cuda/conv/sm90/tensor_core_wide.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {

bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision, int device,
           const void* source, const void* out) {
  const bool is_told = problem.dtype == DType::f32 && tells_sum(epilogue);
  if (uses_mma(properties(device).arch())) return is_told;
  // The wide form finishes sums in registers, and finds those to compute again before it does.
  if (wide_plan_that_pays(problem, direction, precision, device))
    return !epilogue.is_late() && epilogue.activation != Activation::snake;
  if (!resident_fits(problem, direction, precision, device)) return is_told;
  // Where consumers convert the source, direct stores have no time for more: 172 us with LeakyReLU, 133 apart; nor for the
  // lines of a residual where phases are stored (docs/kernels/launches.md).
  if (resident_rows_fit(problem, direction, precision, nullptr, nullptr, device))
    return resident_rows_fuse(problem, direction, epilogue, device);
  if (turned_pays(problem, direction, device) && turned_takes(problem, direction, source, out, device))
    return epilogue.is_light() && (!epilogue.is_late() || (epilogue.residual != 0 && epilogue.derivative == 0));
  // Of f32, sums may be computed again behind the store. What another kernel takes without an epilogue has its bits with one.
  if (problem.dtype == DType::f32 || phases_fit(problem, direction, precision, device) ||
      narrow_pays(problem, direction, precision, device))
    return false;
  // A residual in its stores costs twice the launch that adds it (docs/kernels/launches.md).
  return epilogue.is_light() && !epilogue.is_late();
}

}  // namespace polyphase::cuda::tensor_core
