#include "cuda/conv/tensor_core/wgrad/few.hpp"

#include "cuda/conv/tensor_core/wgrad/recompute.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

__global__ void __launch_bounds__(kThreads)
    wgrad_few_kernel(const __grid_constant__ ConvProblem problem, std::int64_t weights, const float* __restrict__ x,
                     const float* __restrict__ y, float* __restrict__ w) {
  for (std::int64_t i = thread_position(); i < weights; i += thread_count()) {
    const WgradTap tap = tap_of(problem, i);
    if (terms_of_tap(problem, tap.k) < kLeastTerms) w[i] = share_of_sum(WgradTeam{0, 1}, problem, x, y, tap);
  }
}

}  // namespace

void wgrad_few(const WgradCall& call) {
  const ConvProblem& problem = call.problem;
  const std::int64_t weights = problem.C_in * problem.channels_out_per_group() * problem.K;
  wgrad_few_kernel<<<grid_for(weights), kThreads, 0, call.stream>>>(
      problem, weights, static_cast<const float*>(call.x), static_cast<const float*>(call.y), static_cast<float*>(call.w));
  check_launch("conv tensor_core: wgrad, sums of few products");
}

}  // namespace polyphase::cuda::tensor_core
