#include <algorithm>

#include "cuda/allocator.hpp"
#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm80/tensor_core_mma_wgrad.hpp"
#include "cuda/conv/sm90/tensor_core.hpp"
#include "cuda/conv/sm90/tensor_core_wgrad_prepare.cuh"
#include "cuda/conv/sm90/tensor_core_wgrad_types.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

void wgrad_f32(const ConvProblem& problem, Precision precision, const void* x, const void* y, void* w, int device,
               cudaStream_t stream) {
  const auto* xs = static_cast<const float*>(x);
  const auto* ys = static_cast<const float*>(y);
  const Buffer buffer(sizeof(WgradScales), device);
  auto* scales = buffer.as<WgradScales>();
  CHECK_CUDA(cudaMemsetAsync(scales, 0, sizeof(WgradScales), stream));
  wgrad_scales_kernel<<<2 * kSampleGroups, kSampleThreads, 0, stream>>>(xs, problem.N * problem.C_in * problem.L_in, ys,
                                                                        problem.N * problem.C_out * problem.L_out, scales);
  check_launch("conv tensor_core: wgrad scales");
  const WgradCall call{problem, x, y, w, scales, device, stream};
  if (uses_mma(properties(device).arch()))
    mma_wgrad_as(call, precision);
  else
    precision == Precision::tf32 ? wgrad_tf32(call) : wgrad_split(call);
  const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
  const auto blocks = static_cast<unsigned>(
      std::min<std::int64_t>((weights + kRepairThreads - 1) / kRepairThreads, properties(device).sm_count));
  launch_behind(&wgrad_repair_kernel, blocks, kRepairThreads, 0, stream, problem, xs, ys, static_cast<float*>(w), scales);
  check_launch("conv tensor_core: wgrad repair");
}

}  // namespace

void wgrad(const ConvProblem& problem, Precision precision, const void* x, const void* y, void* w, int device,
           cudaStream_t stream) {
  if (problem.N == 0) {
    const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
    CHECK_CUDA(cudaMemsetAsync(w, 0, static_cast<std::size_t>(weights) * size_of(problem.dtype), stream));
    return;
  }
  if (problem.dtype == DType::f32) return wgrad_f32(problem, precision, x, y, w, device, stream);
  const WgradCall call{problem, x, y, w, nullptr, device, stream};
  if (uses_mma(properties(device).arch())) return mma_wgrad_as(call, precision);
  problem.dtype == DType::f16 ? wgrad_half(call) : wgrad_brain(call);
}

}  // namespace polyphase::cuda::tensor_core
