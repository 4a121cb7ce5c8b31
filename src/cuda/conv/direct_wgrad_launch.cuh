#pragma once
// Host side of the direct weight gradient: the plan and the launches. Included by direct_wgrad.cu.

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cuda/allocator.hpp"
#include "cuda/conv/direct.hpp"
#include "cuda/conv/direct_wgrad.cuh"
#include "cuda/conv/reduce_slices.cuh"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::direct {

// A slice sums at most this many chunks one after another: rounding errors grow with the root of that number.
inline constexpr std::int64_t kSliceChunks = 512;

/// The tile that wastes least of a block's threads, and slices for two blocks on every SM. A pure function of problem and SM
/// count.
[[nodiscard]] inline WgradPlan make_wgrad_plan(const ConvProblem& problem, int sm_count, int word_bytes) {
  const auto round_up = [](std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; };
  const auto tiles_of = [](std::int64_t value, std::int64_t tile) { return static_cast<int>((value + tile - 1) / tile); };
  const std::int64_t g = std::gcd(problem.S, problem.D);
  const std::int64_t ci = problem.channels_in_per_group(), co = problem.channels_out_per_group();
  WgradPlan plan{};
  const std::int64_t phase_classes = problem.S / g;
  plan.tap_step = static_cast<int>(problem.D / g);
  constexpr int kStageBytes = 36 * 1024;  // three stages and two blocks an SM within 227 KB
  double best = -1;
  auto consider = [&](std::int64_t ci_tile, std::int64_t taps, std::int64_t co_tile) {
    const std::int64_t planes = std::min(taps, phase_classes);
    const std::int64_t window = (kChunk + ((taps + planes - 1) / planes - 1) * plan.tap_step) | 1;
    const std::int64_t x_pitch = ci_tile + 4, y_pitch = co_tile + 4;
    const std::int64_t words = kChunk * x_pitch + round_up(planes * window * y_pitch, 4);
    if (words * word_bytes > kStageBytes) return false;
    const double useful = static_cast<double>(ci * co * problem.K) /
                          static_cast<double>(round_up(ci, ci_tile) * round_up(co, co_tile) * round_up(problem.K, taps));
    const double products = static_cast<double>(ci_tile * co_tile * taps);
    const double score =
        useful * products / (products + 24.0 * static_cast<double>(words) / kChunk);  // staging costs issue slots too
    if (score <= best) return true;
    best = score;
    plan.ci_tile = static_cast<int>(ci_tile);
    plan.co_tile = static_cast<int>(co_tile);
    plan.tap_tile = static_cast<int>(taps);
    plan.planes = static_cast<int>(planes);
    plan.window = static_cast<int>(window);
    plan.x_pitch = static_cast<int>(x_pitch);
    plan.y_pitch = static_cast<int>(y_pitch);
    plan.stage_words = static_cast<int>(words);
    return true;
  };
  for (std::int64_t ci_tile : {128, 64, 32, 16, 8}) {
    if (ci_tile > round_up(ci, 8)) continue;
    const std::int64_t columns = 256 / (ci_tile / 8);  // (tap, 8 co) pairs a block can hold
    for (std::int64_t taps = 1; taps <= std::min<std::int64_t>(problem.K, columns); ++taps) {
      std::int64_t co_tile = std::min(columns / taps * 8, round_up(co, 8));
      while (!consider(ci_tile, taps, co_tile) && co_tile > 8) co_tile = round_up(co_tile / 2, 8);
    }
  }
  plan.ci_tiles = tiles_of(ci, plan.ci_tile);
  plan.co_tiles = tiles_of(co, plan.co_tile);
  plan.tap_tiles = tiles_of(problem.K, plan.tap_tile);
  plan.threads = static_cast<int>(round_up(plan.ci_tile / 8 * plan.tap_tile * (plan.co_tile / 8), 32));
  plan.weights = ci * problem.G * co * problem.K;
  plan.chunks_per_row = (problem.L_in + kChunk - 1) / kChunk;
  plan.chunks = problem.N * plan.chunks_per_row;
  const std::int64_t tiles = problem.G * plan.ci_tiles * plan.co_tiles * plan.tap_tiles;
  const std::int64_t resident = std::max<std::int64_t>(2, 512 / plan.threads);  // blocks an SM holds at 128 registers a thread
  const std::int64_t wanted = std::max<std::int64_t>(1, resident * sm_count / tiles);
  plan.chunks_per_slice = std::clamp<std::int64_t>((plan.chunks + wanted - 1) / wanted, 1, kSliceChunks);
  plan.slices = (plan.chunks + plan.chunks_per_slice - 1) / plan.chunks_per_slice;
  plan.blocks = tiles * plan.slices;
  plan.by_planes = FastDivide(static_cast<std::uint32_t>(plan.planes));
  return plan;
}

/// The body of wgrad() for one dtype; N and L_in at least 1.
template <class T>
void wgrad_as(const ConvProblem& problem, const T* x, const T* y, T* w, int device, cudaStream_t stream) {
  using A = typename AccumulatorOf<T>::type;
  const WgradPlan plan = make_wgrad_plan(problem, properties(device).sm_count, sizeof(A));
  const Buffer partial(static_cast<std::size_t>(plan.slices * plan.weights) * sizeof(A), device);
  const std::size_t shared = kWgradStages * static_cast<std::size_t>(plan.stage_words) * sizeof(A);
  auto* kernel = wgrad_kernel<T, A>;
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  kernel<<<static_cast<unsigned>(plan.blocks), plan.threads, shared, stream>>>(problem, plan, x, y, partial.as<A>());
  check_launch("conv direct: wgrad");
  reduce_slices(partial.as<A>(), plan.weights, plan.slices, w, stream);
}

}  // namespace polyphase::cuda::direct
