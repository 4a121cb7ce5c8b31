#pragma once
// What comes before and after the product of a weight gradient.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/sm90/operand.cuh"
#include "cuda/conv/sm90/tensor_core_wgrad_types.hpp"
#include "cuda/dependent_launch.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kSampleThreads = 256, kSampleGroups = 32;  // of a tensor
inline constexpr int kSampleLoads = 16;                         // of a thread, all at once; at least half of them exist

/// The largest of samples of x and y, of all of it where there are few.
__global__ void __launch_bounds__(kSampleThreads)
    wgrad_scales_kernel(const float* __restrict__ x, std::int64_t x_count, const float* __restrict__ y, std::int64_t y_count,
                        WgradScales* __restrict__ scales) {
  let_dependents_start();
  const bool second = blockIdx.x >= kSampleGroups;
  const float* values = second ? y : x;
  const std::int64_t count = second ? y_count : x_count;
  constexpr std::int64_t kThreads = kSampleGroups * kSampleThreads;
  const std::int64_t stride = max(std::int64_t{1}, count / (kThreads * kSampleLoads / 2));
  const std::int64_t thread = std::int64_t{blockIdx.x % kSampleGroups} * kSampleThreads + threadIdx.x;
  std::uint32_t magnitudes[kSampleLoads];
#pragma unroll
  for (int j = 0; j < kSampleLoads; ++j) {
    const std::int64_t i = (j * kThreads + thread) * stride;
    magnitudes[j] = i < count ? __float_as_uint(values[i]) & 0x7fffffffU : 0;
  }
  std::uint32_t most = 0;
#pragma unroll
  for (int j = 0; j < kSampleLoads; ++j) most = max(most, magnitudes[j] < 0x7f800000U ? magnitudes[j] : 0);
  most = __reduce_max_sync(0xffffffffU, most);
  if (threadIdx.x % 32 == 0) atomicMax(second ? &scales->y_largest : &scales->x_largest, most);
}

inline constexpr int kRepairThreads = 1024;
inline constexpr int kRepairLoads = 8;  // of each side in flight a thread

/// A sum, scaled, that is at least this large loses little through numbers below the normal halves: each of `small` loses at
/// most 2^-36 (2^-25 where a number is one half) times the other side's `most`, which has to be less than 2^-24 (2^-12) of the
/// sum.
__device__ __forceinline__ float least_safe_weight(std::uint32_t small, float most) {
  return static_cast<float>(small) * most * (1.0F / 2048);
}

/// A thread's share of one weight: positions threadIdx.x, + kRepairThreads, ... of all samples.
__device__ __forceinline__ float repaired_share(const ConvProblem& problem, const float* __restrict__ x,
                                                const float* __restrict__ y, std::int64_t ci, std::int64_t co, std::int64_t k) {
  float sum = 0;
  std::int64_t n = 0, u = threadIdx.x;
  while (true) {
    float from[kRepairLoads], to[kRepairLoads];
#pragma unroll
    for (int i = 0; i < kRepairLoads; ++i) {
      for (; u >= problem.L_in && n < problem.N; ++n) u -= problem.L_in;
      const std::int64_t t = problem.S * u + k * problem.D - problem.P_l;
      const bool exists = n < problem.N && t >= 0 && t < problem.L_out;
      from[i] = exists ? x[(n * problem.C_in + ci) * problem.L_in + u] : 0.0F;
      to[i] = exists ? y[(n * problem.C_out + co) * problem.L_out + t] : 0.0F;
      u += kRepairThreads;
    }
#pragma unroll
    for (int i = 0; i < kRepairLoads; ++i) sum = fmaf(from[i], to[i], sum);
    if (n >= problem.N) return sum;
  }
}

/// Computes one weight again with FFMA, by a whole block.
__device__ __forceinline__ void repair_weight(const ConvProblem& problem, const float* __restrict__ x,
                                              const float* __restrict__ y, float* __restrict__ w, std::int64_t i) {
  __shared__ float warps[kRepairThreads / 32];
  const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
  const std::int64_t k = i % problem.K, ci = i / problem.K / out, co = ci / in * out + i / problem.K % out;
  float sum = repaired_share(problem, x, y, ci, co, k);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffU, sum, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0;
    for (const float part : warps) sum += part;
    w[i] = sum;
  }
  __syncthreads();
}

/// Computes again the weights that the splitting may have got wrong.
__global__ void __launch_bounds__(kRepairThreads)
    wgrad_repair_kernel(const __grid_constant__ ConvProblem problem, const float* __restrict__ x, const float* __restrict__ y,
                        float* __restrict__ w, WgradScales* __restrict__ scales) {
  wait_for_grid_before();
  const bool never = scales->most > __float_as_uint(kLargestHalf);
  if (scales->small == 0 && !never) return;
  __shared__ int found[kRepairThreads];
  __shared__ int count;
  const float least =
      ldexpf(least_safe_weight(scales->small, __uint_as_float(scales->most)),
             -scale_exponent(scales->x_largest, kSourceTarget) - scale_exponent(scales->y_largest, kSourceTarget));
  const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
  for (std::int64_t first = std::int64_t{blockIdx.x} * kRepairThreads; first < weights;
       first += std::int64_t{gridDim.x} * kRepairThreads) {
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const std::int64_t own = first + threadIdx.x;
    // In any order: each is computed by itself.
    if (own < weights && (never || fabsf(w[own]) < least)) found[atomicAdd(&count, 1)] = static_cast<int>(threadIdx.x);
    __syncthreads();
    for (int i = 0; i < count; ++i) repair_weight(problem, x, y, w, first + found[i]);
    if (threadIdx.x == 0 && count != 0) atomicAdd(&scales->repaired, static_cast<std::uint32_t>(count));
    __syncthreads();
  }
}

}  // namespace polyphase::cuda::tensor_core
