#pragma once
// The kernel that precedes the product of a weight gradient.

#include <cstdint>

#include "cuda/conv/tensor_core/wgrad/types.hpp"
#include "cuda/kernel/dependent_launch.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kSampleThreads = 256;
inline constexpr int kSampleLoads = 16;  // per thread, all together; at least half of them exist

/// The largest of samples of x and y, of all of it where there are few; a block for each of kSampleGroups of either. Sets the
/// counts and `zeros` counts after the scales to zero. The next launch may read x and y immediately: it starts when
/// they are there.
__global__ void __launch_bounds__(kSampleThreads)
    wgrad_scales_kernel(const float* x, std::int64_t x_count, const float* y, std::int64_t y_count, std::int64_t zeros,
                        WgradScales* scales) {
  wait_for_grid_before();
  let_dependents_start();
  __shared__ std::uint32_t warps[kSampleThreads / 32];
  const bool second = blockIdx.x >= kSampleGroups;
  const float* values = second ? y : x;
  const std::int64_t count = second ? y_count : x_count;
  constexpr std::int64_t kThreads = kSampleGroups * kSampleThreads;
  const std::int64_t stride = max(std::int64_t{1}, count / (kThreads * kSampleLoads / 2));
  const std::int64_t thread = std::int64_t{blockIdx.x % kSampleGroups} * kSampleThreads + threadIdx.x;
  for (std::int64_t job = std::int64_t{blockIdx.x} * kSampleThreads + threadIdx.x; job < zeros; job += 2 * kThreads)
    small_of_jobs(scales)[job] = 0;
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
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const std::uint32_t other : warps) most = max(most, other);
  (second ? scales->y_largest : scales->x_largest)[blockIdx.x % kSampleGroups] = most;
  if (blockIdx.x == 0) scales->small = 0, scales->most = 0;
}

}  // namespace polyphase::cuda::tensor_core
