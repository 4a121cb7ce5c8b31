#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/source_in_registers/stride1/launch.cuh"

namespace polyphase::cuda::tensor_core {

Stride1Tiling stride1_tiling(const KernelProblem& asked, const DeviceProperties& gpu) {
  const TapGemm gemm = make_tap_gemm(asked.problem, asked.direction);
  Stride1Tiling found{};
  const auto keep = [&](auto, const Stride1Tiling& tiling) { found = tiling; };
  if (asked.problem.dtype != DType::f32)
    with_stride1_kernel<F16>(gemm, asked.at, gpu, keep);
  else if (asked.precision == Precision::tf32)
    with_stride1_kernel<ScaledF16>(gemm, asked.at, gpu, keep);
  else
    with_stride1_kernel<SplitF16>(gemm, asked.at, gpu, keep);
  return found;
}

void stride1_gather(const Gather& call) {
  if (call.problem.dtype != DType::f32) return gather_stride1_16bit(call);
  if (call.epilogue.has_aux()) return gather_stride1_aux(call);
  if (call.precision == Precision::tf32) return gather_stride1<ScaledF16>(call);
  return gather_stride1<SplitF16>(call);
}

}  // namespace polyphase::cuda::tensor_core
