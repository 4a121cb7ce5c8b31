#pragma once
// What comes before and after the product of a weight gradient.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/sm90/scales.cuh"

namespace polyphase::cuda::tensor_core {

/// The largest of samples of x and y.
__global__ void __launch_bounds__(kPrepareThreads)
    wgrad_scales_kernel(const float* __restrict__ x, std::int64_t x_count, const float* __restrict__ y, std::int64_t y_count,
                        WgradState* __restrict__ state) {
  const bool second = blockIdx.x >= kSampleBlocks;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x % kSampleBlocks) * kPrepareThreads + threadIdx.x;
  const std::int64_t count = second ? y_count : x_count;
  const std::int64_t stride = max(static_cast<std::int64_t>(1), count / kSample);
  find_largest(second ? y : x, thread * stride, kSampleBlocks * kPrepareThreads * stride, count,
               second ? &state->y_largest : &state->x_largest);
}

/// Computes again with FFMA the weights that the splitting may have got wrong; one block a weight.
__global__ void __launch_bounds__(256)
    wgrad_repair_kernel(const __grid_constant__ ConvProblem problem, const float* __restrict__ x, const float* __restrict__ y,
                        float* __restrict__ w, WgradState* __restrict__ state) {
  if (state->small == 0 && state->never == 0) return;
  __shared__ float warps[8];
  const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
  const float least =
      ldexpf(least_safe_sum(static_cast<double>(state->small)),
             -scale_exponent(state->x_largest, kSourceTarget) - scale_exponent(state->y_largest, kSourceTarget));
  for (std::int64_t i = blockIdx.x; i < problem.C_in * out * problem.K; i += gridDim.x) {
    if (state->never == 0 && fabsf(w[i]) >= least) continue;
    const std::int64_t k = i % problem.K, ci = i / problem.K / out, co = ci / in * out + i / problem.K % out;
    float sum = 0;
    for (std::int64_t n = 0; n < problem.N; ++n) {
      const float* from = x + (n * problem.C_in + ci) * problem.L_in;
      const float* to = y + (n * problem.C_out + co) * problem.L_out;
      for (std::int64_t u = threadIdx.x; u < problem.L_in; u += 256) {
        const std::int64_t t = problem.S * u + k * problem.D - problem.P_l;
        if (t >= 0 && t < problem.L_out) sum = fmaf(from[u], to[t], sum);
      }
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffU, sum, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      sum = 0;
      for (const float part : warps) sum += part;
      w[i] = sum;
      atomicAdd(&state->repaired, 1U);
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
