#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

namespace {

/// Bytes of an output from which on its preconverted kernel is finished in its stores: a launch over fewer finds them in the
/// second-level cache, where code of the stores that has run in no tile before takes longer (docs/kernels/launches.md).
constexpr std::int64_t kPreconvertedAuxLeast = std::int64_t{24} << 20;

/// The aux operand comes to where its row is put together, while products run: there is room for one thing. Of
/// 16 bits that costs more than a launch, where slices are added up nothing runs (docs/kernels/launches.md).
bool preconverted_finishes_aux(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue,
                               Precision precision, int device) {
  if (problem.dtype != DType::f32 || !epilogue.is_light() || epilogue.has_both()) return false;
  const TapGemm gemm = make_tap_gemm(problem, direction);
  const std::int64_t bytes = gemm.N * gemm.G * gemm.out_channels * gemm.out_length * size_of(problem.dtype);
  if (gemm.out_stride != 1 || bytes < kPreconvertedAuxLeast) return false;
  const auto plan = preconverted_plan(problem, direction, precision, device);
  return plan && plan->tiling.slices == 1;
}

/// The aux operand comes to where it is staged: there is room for one thing, but `may_add` a residual to what went
/// through a derivative, by vectors. Of 16 bits everything comes by vectors, and of 32 columns two of four warps do it all,
/// which takes longer than a launch (docs/kernels/launches.md).
bool staged_finish_aux(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, const void* out,
                       bool may_add) {
  const TapGemm gemm = make_tap_gemm(problem, direction);
  if (gemm.out_stride != 1) return false;
  const std::int64_t sector = 32 / size_of(problem.dtype);
  const bool by_vectors = gemm.out_length % sector == 0 && reinterpret_cast<std::uintptr_t>(out) % 32 == 0 &&
                          (epilogue.residual | epilogue.derivative) % 16 == 0;
  if (epilogue.has_both()) return may_add && by_vectors;
  return problem.dtype == DType::f32 || (by_vectors && gemm.columns > 32);
}

}  // namespace

bool source_tma_fuses(const KernelProblem& asked, const Epilogue& epilogue, const DeviceProperties& gpu) {
  if (!epilogue.is_light() || (epilogue.residual | epilogue.derivative) % 16 != 0) return false;
  if (!epilogue.has_both()) return true;
  const int parts = asked.precision == Precision::tf32 ? 1 : 2;
  const TmaTiling tiling =
      make_tma_tiling(make_tap_gemm(asked.problem, asked.direction), tma_shape_of(parts, asked.source, asked.out), gpu.sm_count,
                      gpu.shared_bytes_per_block);
  return tiling.kind == TmaRows::whole && source_tma_has_both(parts, tiling.is_half, tiling.depths);
}

bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision, int device,
           const void* source, const void* out) {
  const bool is_told = problem.dtype == DType::f32 && tells_sum(epilogue);
  if (uses_mma(properties(device).arch())) return is_told;
  const auto chosen = chosen_kernel({problem, direction, precision, source, out}, device);
  if (!chosen) return false;
  const bool is_split = problem.dtype == DType::f32 && precision == Precision::fp32;
  switch (chosen->kernel) {
    // These finish sums in registers, and find those to compute again before they do.
    case GatherKernel::preconverted:
      if (epilogue.has_aux()) return preconverted_finishes_aux(problem, direction, epilogue, precision, device);
      [[fallthrough]];
    case GatherKernel::phased_stride2:
    case GatherKernel::phased_stride4:
      return !epilogue.has_aux() && epilogue.activation != Activation::snake;
    // Of 16 bits, direct stores have no time for more where consumers convert the source; of f32 products hide it.
    case GatherKernel::stride1:
      return stride1_fuses(problem, direction, epilogue, precision, device, source, out);
    // The aux operand comes by boxes to where they are staged: there is room for one thing, of f32 one by one.
    case GatherKernel::source_tma_16bit:
      return epilogue.is_light() && !epilogue.has_both() && epilogue.first_aux() % 32 == 0;
    case GatherKernel::source_tma:
      return source_tma_fuses({problem, direction, precision, source, out}, epilogue, properties(device));
    case GatherKernel::stationary:
      return epilogue.is_light() && (!epilogue.has_aux() || staged_finish_aux(problem, direction, epilogue, out, is_split));
    case GatherKernel::source_bulk:
      if (epilogue.has_aux()) return epilogue.is_light() && staged_finish_aux(problem, direction, epilogue, out, false);
      return epilogue.is_light() && source_bulk_activates(problem, direction, precision, out, device);
  }
  return false;
}

}  // namespace polyphase::cuda::tensor_core
