#pragma once
// The kernel that precedes the product of a weight gradient.

#include <cstdint>

#include "cuda/conv/tensor_core/wgrad/types.hpp"
#include "cuda/conv/tensor_core/wgrad/wide/sample.cuh"
#include "cuda/kernel/dependent_launch.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kSampleThreads = 256;
inline constexpr int kSampleWarps = kSampleGroups * kSampleThreads / 32;
static_assert(kSampleWords * kSampleTeam == kSampleWarps);

/// A tensor (N, C, L) to sample. A team has windows of one channel over samples and positions. The windows of a small tensor
/// are all of it.
struct WgradSampled {
  const float* values;
  std::int64_t N, C, L;
  [[nodiscard]] __host__ __device__ std::int64_t count() const { return N * C * L; }

  /// The magnitudes of a lane, as float bits; 0 where it has no number.
  __device__ __forceinline__ void load(int warp, int lane, std::uint32_t (&magnitudes)[kSampleLoads]) const {
    constexpr int kAll = kSampleWarps * kSampleLoads * kSampleWindow;
    const bool is_small = count() <= kAll;
    // Positions are apart by a share of a row that is no simple fraction, so that windows of different samples differ.
    const auto length = static_cast<std::uint32_t>(min(L, std::int64_t{INT32_MAX}));
    const std::uint32_t last = length - min(length, static_cast<std::uint32_t>(kSampleWindow));
    const auto samples = static_cast<std::uint32_t>(min(N, std::int64_t{INT32_MAX}));
    const auto channels = static_cast<std::uint32_t>(min(C, std::int64_t{kSampleWords}));
    // Teams share the channels, or take some of them.
    const std::uint32_t team = static_cast<std::uint32_t>(warp / kSampleTeam) % channels;
    const float* const channel = values + team * static_cast<std::uint32_t>(C) / channels * L;
    const auto first = static_cast<std::uint32_t>(warp * kSampleLoads);
    std::uint32_t sample = first % samples;
#pragma unroll
    for (int j = 0; j < kSampleLoads; ++j) {
      const std::uint32_t window = first + static_cast<std::uint32_t>(j);
      const std::uint32_t turn = window * 0x9e3779b9U;  // the golden ratio of 2^32
      const std::uint32_t at = is_small ? window * kSampleWindow : __umulhi(turn, last + 1);
      const std::uint32_t size = is_small ? static_cast<std::uint32_t>(count()) : length;
      const float* const from = is_small ? values : channel + sample * (C * L);
      const std::uint32_t own = at + static_cast<std::uint32_t>(lane);
      magnitudes[j] = own < size ? __float_as_uint(from[own]) & 0x7fffffffU : 0;
      if (++sample == samples) sample = 0;
    }
  }
};

/// Samples x and y, all of them where they are small; a block for each of kSampleGroups of either. Sets the counts and `zeros`
/// counts after the scales to zero. The next launch may read x and
/// y immediately: it starts when they are there.
__global__ void __launch_bounds__(kSampleThreads)
    wgrad_scales_kernel(const __grid_constant__ WgradSampled x, const __grid_constant__ WgradSampled y, std::int64_t zeros,
                        WgradScales* scales) {
  wait_for_grid_before();
  let_dependents_start();
  __shared__ std::uint32_t warps[kSampleThreads / 32], words[kSampleThreads / 32];
  const bool second = blockIdx.x >= kSampleGroups;
  const WgradSampled& from = second ? y : x;
  constexpr std::int64_t kThreads = kSampleGroups * kSampleThreads;
  for (std::int64_t job = std::int64_t{blockIdx.x} * kSampleThreads + threadIdx.x; job < zeros; job += 2 * kThreads)
    small_of_jobs(scales)[job] = 0;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const auto warp = static_cast<int>(blockIdx.x % kSampleGroups * (kSampleThreads / 32) + threadIdx.x / 32);
  std::uint32_t magnitudes[kSampleLoads];
  from.load(warp, lane, magnitudes);
  std::uint32_t most = 0;
#pragma unroll
  for (std::uint32_t& one : magnitudes) {
    if (one >= 0x7f800000U) one = 0;
    most = max(most, one);
  }
  most = __reduce_max_sync(0xffffffffU, most);
  const std::uint32_t word = most == 0 ? 0 : WgradSampleWord::of(magnitudes, most);
  if (lane == 0) warps[threadIdx.x / 32] = most, words[threadIdx.x / 32] = word;
  __syncthreads();
  if (threadIdx.x < kSampleThreads / 32 / kSampleTeam) {
    std::uint32_t team = 0;
    for (int i = 0; i < kSampleTeam; ++i) team = WgradSampleWord::joined(team, words[threadIdx.x * kSampleTeam + i]);
    (second ? scales->y_sample : scales->x_sample)[warp / kSampleTeam + static_cast<int>(threadIdx.x)] = team;
  }
  if (threadIdx.x != 0) return;
  for (const std::uint32_t other : warps) most = max(most, other);
  (second ? scales->y_largest : scales->x_largest)[blockIdx.x % kSampleGroups] = most;
  if (blockIdx.x == 0) scales->small = 0, scales->most = 0;
}

}  // namespace polyphase::cuda::tensor_core
