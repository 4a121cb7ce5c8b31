#pragma once
// The tiling of the direct weight gradient's window kernel (wgrad_window.cuh). Plain host code.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "conv/problem.hpp"

namespace polyphase::cuda::direct {

inline constexpr int kChunk = 32;       // positions per stage
inline constexpr int kWgradStages = 3;  // one barrier per step
// A slice sums at most this many chunks: rounding errors grow with the square root of the number.
inline constexpr std::int64_t kSliceChunks = 512;

inline constexpr int kWindowTaps = 8;     // per thread
inline constexpr int kWindowXPitch = 36;  // eight rows of x begin in different banks
inline constexpr int kWindowHalves = 2;
inline constexpr int kWindowLanes = 8;                    // threads next to each other along ci
inline constexpr int kWindowChannels = 8 * kWindowLanes;  // ci per tile

/// Words of a row of y in a stage, and the pitch of these rows: four rows begin in different banks.
constexpr int window_words(int stride) { return (stride * (kChunk - 1) + kWindowTaps + 3) / 4 * 4; }
constexpr int window_pitch(int stride) { return window_words(stride) + (36 - window_words(stride) % 32) % 32; }

/// A launch of the kernel, computed on the host.
struct WgradWindowPlan {
  int co_tile;  // a tile is kWindowChannels x co_tile x kWindowTaps weights
  int ci_tiles, co_tiles, tap_tiles;
  int threads;  // per half: kWindowLanes * co_tile, whole warps
  int stage_words;
  int x_vector, y_vector;  // words per copy
  std::int64_t chunks_per_row, chunks, chunks_per_half, slices, blocks;
  std::int64_t slots;  // partial sums of a slice: (tile of weights, 64 sums of a thread, thread)
};

/// Shared memory of a block: the stages of both halves, reused for the second half's sums.
[[nodiscard]] inline std::size_t window_shared_bytes(const WgradWindowPlan& plan) {
  const int stages = kWindowHalves * kWgradStages * plan.stage_words;
  return sizeof(float) * static_cast<std::size_t>(std::max(stages, 64 * plan.threads));
}

/// The launch of the window kernel, or nothing if the general kernel must be used or is faster: tiles less than three quarters
/// full, or too few blocks. `x` and `y` determine the width of copies. A pure function of problem, alignment and SM count.
[[nodiscard]] inline std::optional<WgradWindowPlan> make_wgrad_window_plan(const ConvProblem& problem, const void* x,
                                                                           const void* y, int sm_count) {
  if (problem.dtype != DType::f32 || problem.D != 1 || (problem.S != 1 && problem.S != 2 && problem.S != 4))
    return std::nullopt;
  const auto tiles_of = [](std::int64_t value, std::int64_t tile) { return static_cast<int>((value + tile - 1) / tile); };
  const std::int64_t ci = problem.channels_in_per_group(), co = problem.channels_out_per_group();
  WgradWindowPlan plan{};
  plan.co_tile = 32;
  while (plan.co_tile > 8 && plan.co_tile / 2 >= co) plan.co_tile /= 2;
  plan.threads = kWindowLanes * plan.co_tile;
  plan.ci_tiles = tiles_of(ci, kWindowChannels), plan.co_tiles = tiles_of(co, plan.co_tile);
  plan.tap_tiles = tiles_of(problem.K, kWindowTaps);
  const auto S = static_cast<int>(problem.S);
  plan.stage_words = kWindowChannels * kWindowXPitch + plan.co_tile * window_pitch(S);
  const auto is_multiple = [](const void* pointer, std::int64_t length, std::int64_t words) {
    return reinterpret_cast<std::uintptr_t>(pointer) % (4 * static_cast<std::uintptr_t>(words)) == 0 && length % words == 0;
  };
  plan.x_vector = is_multiple(x, problem.L_in, 4) ? 4 : 1;
  plan.y_vector = 1;
  for (const int words : {2, 4})
    if (is_multiple(y, problem.L_out, words) && problem.P_l % words == 0) plan.y_vector = words;
  plan.chunks_per_row = tiles_of(problem.L_in, kChunk);
  plan.chunks = problem.N * plan.chunks_per_row;
  const std::int64_t tiles = problem.G * plan.ci_tiles * plan.co_tiles * plan.tap_tiles;
  plan.slots = tiles * 64 * plan.threads;
  const double full = static_cast<double>(problem.G * ci * co * problem.K) / static_cast<double>(plan.slots);
  if (full < 0.75 || plan.slots >= std::int64_t{1} << 31) return std::nullopt;
  const std::int64_t slices = std::max<std::int64_t>(1, sm_count / tiles);
  const std::int64_t of_slice = (plan.chunks + kWindowHalves * slices - 1) / (kWindowHalves * slices);
  plan.chunks_per_half = std::clamp<std::int64_t>(of_slice, 1, kSliceChunks);
  plan.slices = (plan.chunks + kWindowHalves * plan.chunks_per_half - 1) / (kWindowHalves * plan.chunks_per_half);
  plan.blocks = tiles * plan.slices;
  // One block fills an SM: the waves must be at least 90 % full on average.
  const std::int64_t turns = (plan.blocks + sm_count - 1) / sm_count;
  if (10 * plan.blocks < 9 * turns * sm_count || plan.blocks > INT32_MAX) return std::nullopt;
  return plan;
}

}  // namespace polyphase::cuda::direct
