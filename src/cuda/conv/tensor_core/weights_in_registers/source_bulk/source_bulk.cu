#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/launch.cuh"

namespace polyphase::cuda::tensor_core {

bool source_bulk_activates(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* out,
                           int device) {
  const TapGemm gemm = make_tap_gemm(problem, direction);
  if (problem.dtype == DType::f16 || problem.dtype == DType::bf16) return !bulk_tiling_of<F16>(gemm, out, device).is_spread;
  if (precision == Precision::tf32) return !bulk_tiling_of<ScaledF16>(gemm, out, device).is_spread;
  return !bulk_tiling_of<SplitF16>(gemm, out, device).is_spread;
}

void source_bulk_gather(const Gather& call) {
  if (call.epilogue.has_aux()) return source_bulk_gather_aux(call);
  gather_source_bulk<false>(call);
}

}  // namespace polyphase::cuda::tensor_core
