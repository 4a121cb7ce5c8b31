#include "cuda/conv/tensor_core/both_in_shared/stationary/stationary.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/both_in_shared/stationary/launch.cuh"

namespace polyphase::cuda::tensor_core {

StationaryTiling stationary_tiling(const KernelProblem& asked, const DeviceProperties& gpu) {
  const TapGemm gemm = make_tap_gemm(asked.problem, asked.direction);
  if (asked.problem.dtype != DType::f32) return stationary_tiling_of<F16>(gemm, asked.at, gpu);
  return asked.precision == Precision::tf32 ? stationary_tiling_of<ScaledF16>(gemm, asked.at, gpu)
                                            : stationary_tiling_of<SplitF16>(gemm, asked.at, gpu);
}

void stationary_gather(const Gather& call) {
  if (call.epilogue.has_aux()) return stationary_gather_aux(call);
  gather_stationary<false>(call);
}

}  // namespace polyphase::cuda::tensor_core
