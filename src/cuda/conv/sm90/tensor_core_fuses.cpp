#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core.hpp"
#include "cuda/conv/sm90/tensor_core_forms.hpp"
#include "cuda/conv/sm90/tensor_core_resident_rows.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {

bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision, int device,
           const void* source, const void* out) {
  const bool is_told = problem.dtype == DType::f32 && tells_sum(epilogue);
  if (uses_mma(properties(device).arch())) return is_told;
  const auto chosen = chosen_form({problem, direction, precision, source, out}, device);
  if (!chosen) return false;
  switch (chosen->form) {
    // These finish sums in registers, and find those to compute again before they do.
    case GatherForm::wide:
    case GatherForm::phases:
    case GatherForm::units:
      return !epilogue.is_late() && epilogue.activation != Activation::snake;
    // Where consumers convert the source, direct stores have no time for more: 172 us with LeakyReLU, 133 apart
    // (docs/kernels/launches.md).
    case GatherForm::rows:
      return resident_rows_fuse(problem, direction, epilogue, device);
    case GatherForm::turned:
      return epilogue.is_light() && (!epilogue.is_late() || (epilogue.residual != 0 && epilogue.derivative == 0));
    // A residual in its stores costs twice the launch that adds it (docs/kernels/launches.md).
    case GatherForm::resident:
      return epilogue.is_light() && !epilogue.is_late();
    case GatherForm::streamed:
      return is_told;
    case GatherForm::boxes:
    case GatherForm::narrow:
      break;
  }
  return false;
}

}  // namespace polyphase::cuda::tensor_core
