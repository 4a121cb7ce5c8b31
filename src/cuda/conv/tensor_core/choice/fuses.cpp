#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

namespace {

/// Bytes of an output from which on its wide form is finished in its stores: a launch over fewer finds them in the second-level
/// cache, where code of the stores that has run in no tile before takes longer (docs/kernels/launches.md).
constexpr std::int64_t kWideLateLeast = std::int64_t{24} << 20;

/// What lies beside an f32 output comes to where its row is put together, while products run: there is room for one thing. Of
/// 16 bits that costs more than a launch, where slices are added up nothing runs (docs/kernels/launches.md).
bool wide_finishes_late(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision,
                        int device) {
  if (problem.dtype != DType::f32 || !epilogue.is_light() || epilogue.has_both()) return false;
  const TapGemm form = make_tap_gemm(problem, direction);
  const std::int64_t bytes = form.N * form.G * form.out_channels * form.out_length * size_of(problem.dtype);
  if (form.out_stride != 1 || bytes < kWideLateLeast) return false;
  const auto plan = wide_plan(problem, direction, precision, device);
  return plan && plan->steps.slices == 1;
}

/// What lies beside an output comes to where it is staged: there is room for one thing, but `may_add` a residual to what went
/// through a derivative, by vectors. Of 16 bits everything comes by vectors, and of 32 columns two of four warps do it all,
/// which takes longer than a launch (docs/kernels/launches.md).
bool staged_finish_late(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, const void* out,
                        bool may_add) {
  const TapGemm form = make_tap_gemm(problem, direction);
  if (form.out_stride != 1) return false;
  const std::int64_t sector = 32 / size_of(problem.dtype);
  const bool by_vectors = form.out_length % sector == 0 && reinterpret_cast<std::uintptr_t>(out) % 32 == 0 &&
                          (epilogue.residual | epilogue.derivative) % 16 == 0;
  if (epilogue.has_both()) return may_add && by_vectors;
  return problem.dtype == DType::f32 || (by_vectors && form.columns > 32);
}

}  // namespace

bool boxes_fuse(const FormProblem& asked, const Epilogue& epilogue, const DeviceProperties& gpu) {
  if (!epilogue.is_light() || (epilogue.residual | epilogue.derivative) % 16 != 0) return false;
  if (!epilogue.has_both()) return true;
  const int parts = asked.precision == Precision::tf32 ? 1 : 2;
  const BoxesSteps steps =
      make_boxes_steps(make_tap_gemm(asked.problem, asked.direction), boxes_shape_of(parts, asked.source, asked.out),
                       gpu.sm_count, gpu.shared_bytes_per_block);
  return steps.kind == BoxesRows::whole && boxes_have_both(parts, steps.is_half, steps.depths);
}

bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision, int device,
           const void* source, const void* out) {
  const bool is_told = problem.dtype == DType::f32 && tells_sum(epilogue);
  if (uses_mma(properties(device).arch())) return is_told;
  const auto chosen = chosen_form({problem, direction, precision, source, out}, device);
  if (!chosen) return false;
  const bool is_split = problem.dtype == DType::f32 && precision == Precision::fp32;
  switch (chosen->form) {
    // These finish sums in registers, and find those to compute again before they do.
    case GatherForm::wide:
      if (epilogue.is_late()) return wide_finishes_late(problem, direction, epilogue, precision, device);
      [[fallthrough]];
    case GatherForm::phases:
    case GatherForm::units:
      return !epilogue.is_late() && epilogue.activation != Activation::snake;
    // Of 16 bits, direct stores have no time for more where consumers convert the source; of f32 products hide it.
    case GatherForm::rows:
      return resident_rows_fuse(problem, direction, epilogue, precision, device, source, out);
    // What lies beside outputs comes by boxes to where they are staged: there is room for one thing, of f32 one by one.
    case GatherForm::turned:
      return epilogue.is_light() && !epilogue.has_both() && epilogue.first_beside() % 32 == 0;
    case GatherForm::boxes:
      return boxes_fuse({problem, direction, precision, source, out}, epilogue, properties(device));
    case GatherForm::resident:
      return epilogue.is_light() && (!epilogue.is_late() || staged_finish_late(problem, direction, epilogue, out, is_split));
    case GatherForm::streamed:
      return is_told;
    case GatherForm::narrow:
      if (epilogue.is_late()) return epilogue.is_light() && staged_finish_late(problem, direction, epilogue, out, false);
      return epilogue.is_light() && narrow_activates(problem, direction, precision, out, device);
  }
  return false;
}

}  // namespace polyphase::cuda::tensor_core
