#pragma once
// Host side of the direct weight gradient: the plan and the launches.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "cuda/conv/direct/direct.hpp"
#include "cuda/conv/direct/wgrad.cuh"
#include "cuda/conv/direct/wgrad_window.cuh"
#include "cuda/conv/reduce_slices.cuh"
#include "cuda/conv/rounding.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::direct {

/// Warps next to each other along the channels that copy `count` positions of `channels` in the fewest warp instructions.
[[nodiscard]] inline int warps_across(int warps, int channels, int count) {
  constexpr int kOfPosition = 14, kOfCopy = 5;
  int best = 1, least = INT32_MAX;
  for (int across = 1; across <= std::min(warps, channels / 4); across *= 2) {
    const int rounds = ((count + 7) / 8 + warps / across - 1) / (warps / across);
    const int instructions = rounds * (kOfPosition + kOfCopy * ((channels / 4 + across - 1) / across));
    if (instructions < least) least = instructions, best = across;
  }
  return best;
}

/// Tiles, planes and pitches for ci_tile x (taps x co_tile) weights per block.
[[nodiscard]] inline WgradPlan wgrad_tiles(const ConvProblem& problem, std::int64_t ci_tile, std::int64_t taps,
                                           std::int64_t co_tile) {
  const auto tiles_of = [](std::int64_t value, std::int64_t tile) { return static_cast<int>((value + tile - 1) / tile); };
  const std::int64_t g = std::gcd(problem.S, problem.D);
  const std::int64_t planes = std::min(taps, problem.S / g);
  WgradPlan plan{};
  plan.tap_step = static_cast<int>(problem.D / g);
  plan.ci_tile = static_cast<int>(ci_tile);
  plan.co_tile = static_cast<int>(co_tile);
  plan.tap_tile = static_cast<int>(taps);
  plan.planes = static_cast<int>(planes);
  // More than fits in a block, and within the range of int.
  const auto limited = [](std::int64_t value) { return static_cast<int>(std::min<std::int64_t>(value, 1 << 22)); };
  const std::int64_t window = (kChunk + ((taps + planes - 1) / planes - 1) * (problem.D / g)) | 1;
  plan.window = limited(window);
  plan.x_pitch = static_cast<int>(ci_tile + 4);
  plan.y_pitch = static_cast<int>(co_tile + 4);
  plan.stage_words = limited(kChunk * plan.x_pitch + round_up(planes * window * plan.y_pitch, 4));
  plan.ci_tiles = tiles_of(problem.channels_in_per_group(), ci_tile);
  plan.co_tiles = tiles_of(problem.channels_out_per_group(), co_tile);
  plan.tap_tiles = tiles_of(problem.K, taps);
  plan.threads = static_cast<int>(round_up(ci_tile / 8 * taps * (co_tile / 8), 32));
  plan.x_across = warps_across(plan.threads / 32, static_cast<int>(ci_tile), kChunk);
  plan.y_across = warps_across(plan.threads / 32, static_cast<int>(co_tile), limited(window * planes));
  plan.slots = problem.G * plan.ci_tiles * plan.co_tiles * plan.tap_tiles * 64 * plan.threads;
  plan.chunks_per_row = (problem.L_in + kChunk - 1) / kChunk;
  plan.chunks = problem.N * plan.chunks_per_row;
  return plan;
}

/// Splits gemm_k into about `slices` slices.
inline void slice_wgrad(WgradPlan& plan, std::int64_t slices) {
  plan.chunks_per_slice = std::clamp<std::int64_t>((plan.chunks + slices - 1) / slices, 1, kSliceChunks);
  plan.slices = (plan.chunks + plan.chunks_per_slice - 1) / plan.chunks_per_slice;
  plan.blocks = plan.slots / 64 / plan.threads * plan.slices;
}

/// Blocks per SM at 128 registers a thread.
[[nodiscard]] inline std::int64_t resident_wgrad_blocks(const WgradPlan& plan, int word_bytes) {
  constexpr std::int64_t kSharedBytes = 227 * 1024, kMostBlocks = 32;
  const std::int64_t by_memory = kSharedBytes / (std::int64_t{kWgradStages} * plan.stage_words * word_bytes + 1024);
  return std::clamp<std::int64_t>(std::min(by_memory, std::int64_t{512} / plan.threads), 1, kMostBlocks);
}

/// Estimated cycles: the work of the busiest SM, and the sum over the slices.
[[nodiscard]] inline double wgrad_cycles(const WgradPlan& plan, int sm_count, int word_bytes) {
  constexpr double kLanes = 128, kStagingSlots = 24, kEdgeCycles = 3000, kBytesPerCycle = 16;
  const double products = 64.0 * plan.threads;
  const double chunk_cycles = (kChunk * products + kStagingSlots * plan.stage_words) / kLanes;
  const double share = static_cast<double>(plan.blocks) / sm_count;
  const double per_sm = share < 8 ? std::ceil(share) : share;
  const double warps =
      std::min<double>(per_sm, static_cast<double>(resident_wgrad_blocks(plan, word_bytes))) * plan.threads / 32;
  const double busy =
      std::min(1.0, 0.25 + 0.75 * std::min(warps, 16.0) / 16);  // few warps do not hide the latency of their reads
  const double block_cycles = static_cast<double>(plan.chunks_per_slice) * chunk_cycles + products / 8;
  const double waves = std::ceil(per_sm / static_cast<double>(resident_wgrad_blocks(plan, word_bytes)));
  return per_sm * block_cycles / busy + waves * kEdgeCycles +
         static_cast<double>(plan.slices * plan.slots) * word_bytes / (sm_count * kBytesPerCycle);
}

/// The plan with the least estimated time over tiles and slices. A pure function of problem and SM count.
[[nodiscard]] inline WgradPlan make_wgrad_plan(const ConvProblem& problem, int sm_count, int word_bytes) {
  const std::int64_t ci = problem.channels_in_per_group(), co = problem.channels_out_per_group();
  constexpr int kStageBytes = 36 * 1024;  // three stages and two blocks an SM within 227 KB
  WgradPlan best{};
  double best_cycles = 1e300;
  auto consider = [&](std::int64_t ci_tile, std::int64_t taps, std::int64_t co_tile) {
    WgradPlan plan = wgrad_tiles(problem, ci_tile, taps, co_tile);
    if (std::int64_t{plan.stage_words} * word_bytes > kStageBytes) return;
    const std::int64_t wave =
        std::max<std::int64_t>(1, resident_wgrad_blocks(plan, word_bytes) * sm_count / (plan.slots / 64 / plan.threads));
    for (const std::int64_t slices : {wave, 2 * wave, wave / 2, wave / 4}) {
      if (slices < 1) continue;
      slice_wgrad(plan, slices);
      const double cycles = wgrad_cycles(plan, sm_count, word_bytes);
      if (cycles < best_cycles) best_cycles = cycles, best = plan;
    }
  };
  for (std::int64_t ci_tile : {128, 64, 32, 16, 8}) {
    if (ci_tile > round_up(ci, 8)) continue;
    for (std::int64_t co_tile : {128, 64, 32, 16, 8}) {
      if (co_tile > round_up(co, 8)) continue;
      const std::int64_t most = std::min<std::int64_t>(problem.K, 256 * 64 / (ci_tile * co_tile));
      for (std::int64_t taps = 1; taps <= most; ++taps) consider(ci_tile, taps, co_tile);
    }
  }
  return best;
}

inline void launch_wgrad_window(const ConvProblem& problem, const WgradWindowPlan& plan, const float* x, const float* y,
                                float* w, int device, cudaStream_t stream) {
  const WgradWindowPlaceOf place_of{plan, static_cast<int>(problem.channels_in_per_group()),
                                    static_cast<int>(problem.channels_out_per_group()), static_cast<int>(problem.K),
                                    FastDivide(static_cast<std::uint32_t>(plan.threads))};
  const Buffer partial(static_cast<std::size_t>(plan.slices * plan.slots) * sizeof(float), device);
  const std::size_t shared = window_shared_bytes(plan);
  auto* const kernel = problem.S == 1   ? wgrad_window_kernel<1>
                       : problem.S == 2 ? wgrad_window_kernel<2>
                                        : wgrad_window_kernel<4>;
  allow_shared_memory(kernel, static_cast<std::int64_t>(shared));
  kernel<<<static_cast<unsigned>(plan.blocks), kWindowHalves * plan.threads, shared, stream>>>(problem, plan, x, y,
                                                                                               partial.as<float>());
  check_launch("conv direct: wgrad by windows");
  reduce_slices(partial.as<float>(), plan.slots, plan.slices, w, stream, place_of);
}

/// wgrad() for one dtype; N and L_in are at least 1.
template <class T>
void wgrad_as(const ConvProblem& problem, const T* x, const T* y, T* w, int device, cudaStream_t stream) {
  using A = typename AccumulatorOf<T>::type;
  if constexpr (std::is_same_v<T, float>) {
    const auto plan = make_wgrad_window_plan(problem, x, y, properties(device).sm_count);
    if (plan && window_shared_bytes(*plan) <= static_cast<std::size_t>(properties(device).shared_bytes_per_block))
      return launch_wgrad_window(problem, *plan, x, y, w, device, stream);
  }
  const WgradPlan plan = make_wgrad_plan(problem, properties(device).sm_count, sizeof(A));
  const WgradPlaceOf place_of{plan, static_cast<int>(problem.channels_in_per_group()),
                              static_cast<int>(problem.channels_out_per_group()), static_cast<int>(problem.K),
                              FastDivide(static_cast<std::uint32_t>(plan.threads))};
  const Buffer partial(static_cast<std::size_t>(plan.slices * plan.slots) * sizeof(A), device);
  const std::size_t shared = kWgradStages * static_cast<std::size_t>(plan.stage_words) * sizeof(A) +
                             static_cast<std::size_t>(plan.window) * static_cast<std::size_t>(plan.planes) * sizeof(YPlace);
  auto* kernel = wgrad_kernel<T, A>;
  allow_shared_memory(kernel, static_cast<std::int64_t>(shared));
  kernel<<<static_cast<unsigned>(plan.blocks), plan.threads, shared, stream>>>(problem, plan, x, y, partial.as<A>());
  check_launch("conv direct: wgrad");
  reduce_slices(partial.as<A>(), plan.slots, plan.slices, w, stream, place_of);
}

}  // namespace polyphase::cuda::direct
