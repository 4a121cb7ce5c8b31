#include "cuda/conv/tensor_core/both_in_shared/stationary/stationary.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/both_in_shared/stationary/launch.cuh"

namespace polyphase::cuda::tensor_core {

StationaryTiling stationary_tiling(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* source,
                                   const void* out, const DeviceProperties& gpu) {
  const TapGemm gemm = make_tap_gemm(problem, direction);
  if (problem.dtype != DType::f32) return stationary_tiling_of<F16>(gemm, source, out, gpu);
  return precision == Precision::tf32 ? stationary_tiling_of<ScaledF16>(gemm, source, out, gpu)
                                      : stationary_tiling_of<SplitF16>(gemm, source, out, gpu);
}

void stationary_gather(const Gather& call) {
  if (call.epilogue.has_aux()) return stationary_gather_aux(call);
  gather_stationary<false>(call);
}

}  // namespace polyphase::cuda::tensor_core
