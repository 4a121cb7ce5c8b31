#pragma once
// The weight gradient on FFMA for f32, D = 1, S = 1, 2 or 4 and filters that fill tiles of eight taps. Read the general kernel
// in wgrad.cuh first.
//
// A thread computes 8 ci x 8 neighbouring taps of one co. Rows of x and y are stored unchanged in shared memory. For four
// positions a thread reads 8 quads of x and the 3*S + 8 neighbouring words of y that their taps use: with S = 4, 13 reads for
// 256 FFMAs (16 in the general kernel). Copies move 16 or 8 bytes per lane if the rows are aligned (4 bytes and a table look-up
// in the general kernel). A block has two halves, each with its own chunks, stages and barrier. The second half adds its sums
// to the first through shared memory, which halves the partial sums in global memory. Everything is added in a fixed order, so
// the result has the same bits every run.

#include <cuda_pipeline.h>

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/direct/wgrad.cuh"
#include "cuda/conv/vector.cuh"
#include "cuda/ptx/index.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::direct {

/// The tile of weights that block `index` of a slice computes.
[[nodiscard]] __device__ __forceinline__ WgradTile window_tile(const WgradWindowPlan& plan, std::uint32_t index) {
  Digits<std::uint32_t> digits{index};
  WgradTile tile{};
  tile.tap = static_cast<int>(digits.take(plan.tap_tiles)) * kWindowTaps;
  tile.co = static_cast<int>(digits.take(plan.co_tiles)) * plan.co_tile;
  tile.ci = static_cast<int>(digits.take(plan.ci_tiles)) * kWindowChannels;
  tile.g = digits.rest;
  return tile;
}

/// Maps a slot of the partial sums to its weight, or to -1. There are fewer than 2^31 slots.
struct WgradWindowPlaceOf {
  WgradWindowPlan plan;
  int ci_per_group, co_per_group, K;
  FastDivide by_threads;

  [[nodiscard]] __device__ __forceinline__ std::int64_t operator()(std::int64_t slot) const {
    const auto index = static_cast<std::uint32_t>(slot);
    const std::uint32_t above = by_threads.divide(index), thread = index - above * by_threads.divisor;
    const WgradTile tile = window_tile(plan, above / 64);
    const auto sum = static_cast<int>(above % 64);
    const int ci = tile.ci + static_cast<int>(thread % kWindowLanes) + sum / kWindowTaps * kWindowLanes;
    const int co = tile.co + static_cast<int>(thread / kWindowLanes), tap = tile.tap + sum % kWindowTaps;
    if (ci >= ci_per_group || co >= co_per_group || tap >= K) return -1;
    return ((tile.g * ci_per_group + ci) * co_per_group + co) * K + tap;
  }
};

/// Rows of a tile in global memory.
struct WindowRows {
  const float* from;
  std::int64_t length;
  int existing;  // number of rows that exist
};

/// stage[row][kWindowXPitch] <- 32 elements of x's rows from `begin` on, four rows per warp, zeros outside the tensor.
template <int kVector>
__device__ __forceinline__ void copy_window_x(const WindowRows& rows, std::int64_t begin, int thread, int threads, float* stage,
                                              const float* any) {
  constexpr int kOfRow = kChunk / kVector;
  const int column = thread % kOfRow * kVector, step = threads / kOfRow;
  const bool in_row = begin + column < rows.length;
  int row = thread / kOfRow;
  const float* from = rows.from + row * rows.length + begin + column;
  float* to = stage + row * kWindowXPitch + column;
#pragma unroll 2
  for (; row < kWindowChannels; row += step, from += step * rows.length, to += step * kWindowXPitch) {
    const bool inside = in_row && row < rows.existing;
    __pipeline_memcpy_async(to, inside ? from : any, 4 * kVector, inside ? 0 : 4 * kVector);
  }
}

/// stage[row][pitch] <- the windows of y's rows from `begin` on, one row per warp. A vector is either inside the row or
/// outside.
template <int kStride, int kVector>
__device__ __forceinline__ void copy_window_y(const WindowRows& rows, std::int64_t begin, int co_tile, int warp, int warps,
                                              float* stage, const float* any) {
  constexpr int kWords = window_words(kStride), kPitch = window_pitch(kStride);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* from = rows.from + warp * rows.length + begin + lane * kVector;
  float* to = stage + warp * kPitch + lane * kVector;
  const bool whole = rows.existing >= co_tile && begin >= 0 && begin + kWords <= rows.length;
#pragma unroll 1
  for (int row = warp; row < co_tile; row += warps, from += warps * rows.length, to += warps * kPitch) {
#pragma unroll
    for (int u = 0; u < kWords; u += 32 * kVector) {
      if (u + 32 * kVector > kWords && u + lane * kVector >= kWords) break;
      if (whole) {
        __pipeline_memcpy_async(to + u, from + u, 4 * kVector);
      } else {
        const std::int64_t e = begin + u + lane * kVector;
        const bool inside = row < rows.existing && e >= 0 && e < rows.length;
        __pipeline_memcpy_async(to + u, inside ? from + u : any, 4 * kVector, inside ? 0 : 4 * kVector);
      }
    }
  }
}

/// Blocks (slice, tile of weights).
template <int kStride>
__global__ void __launch_bounds__(512, 1)
    wgrad_window_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ WgradWindowPlan plan,
                        const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ partial) {
  constexpr int kYWords = (3 * kStride + kWindowTaps + 3) / 4 * 4;
  constexpr int kXWords = kWindowChannels * kWindowXPitch;
  extern __shared__ __align__(16) unsigned char memory[];
  const int half = static_cast<int>(threadIdx.x) >= plan.threads ? 1 : 0;
  const int warps = plan.threads / 32;
  float* const stages = reinterpret_cast<float*>(memory) + half * kWgradStages * plan.stage_words;
  const int ci_per_group = static_cast<int>(problem.C_in / problem.G),
            co_per_group = static_cast<int>(problem.C_out / problem.G);
  const std::uint32_t tiles = gridDim.x / static_cast<std::uint32_t>(plan.slices);
  const std::uint32_t slice = blockIdx.x / tiles, index = blockIdx.x - slice * tiles;
  const WgradTile tile = window_tile(plan, index);

  const std::int64_t first_chunk = (static_cast<std::int64_t>(slice) * kWindowHalves + half) * plan.chunks_per_half;
  const auto count = static_cast<int>(max(min(plan.chunks_per_half, plan.chunks - first_chunk), std::int64_t{0}));
  // The next chunk to fetch.
  const std::int64_t first_n = first_chunk / plan.chunks_per_row;
  auto chunk = static_cast<int>(first_chunk - first_n * plan.chunks_per_row);  // of its row
  WindowRows xs{x + ((first_n * problem.G + tile.g) * ci_per_group + tile.ci) * problem.L_in, problem.L_in,
                ci_per_group - tile.ci};
  WindowRows ys{y + ((first_n * problem.G + tile.g) * co_per_group + tile.co) * problem.L_out, problem.L_out,
                co_per_group - tile.co};
  // The sums need the registers, so thread and block indices are read where they are used.
  auto fetch = [&](int to) {
    const int thread = static_cast<int>(ptx::thread_index()) - half * plan.threads, warp = thread / 32;
    float* stage = stages + to * plan.stage_words;
    const std::int64_t i0 = std::int64_t{chunk} * kChunk, begin = kStride * i0 + tile.tap - problem.P_l;
    if (plan.x_vector == 4)
      copy_window_x<4>(xs, i0, thread, plan.threads, stage, x);
    else
      copy_window_x<1>(xs, i0, thread, plan.threads, stage, x);
    stage += kXWords;
    if (plan.y_vector == 4)
      copy_window_y<kStride, 4>(ys, begin, plan.co_tile, warp, warps, stage, y);
    else if (plan.y_vector == 2)
      copy_window_y<kStride, 2>(ys, begin, plan.co_tile, warp, warps, stage, y);
    else
      copy_window_y<kStride, 1>(ys, begin, plan.co_tile, warp, warps, stage, y);
    if (++chunk < plan.chunks_per_row) return;
    chunk = 0;
    xs.from += problem.C_in * problem.L_in;
    ys.from += problem.C_out * problem.L_out;
  };

  float sums[8][kWindowTaps] = {};
  for (int step = 0; step < kWgradStages - 1; ++step) {
    if (step < count) fetch(step);
    __pipeline_commit();
  }
  int stage = 0;
#pragma unroll 1
  for (int left = count; left > 0; --left) {
    __pipeline_wait_prior(kWgradStages - 2);
    ptx::named_barrier(1 + half,
                       plan.threads);  // this step's stage is filled, and no thread still reads the stage to fill next
    if (left > kWgradStages - 1) fetch(stage == 0 ? kWgradStages - 1 : stage - 1);
    __pipeline_commit();
    const int thread = static_cast<int>(ptx::thread_index()) - half * plan.threads;
    const float* from_x = stages + stage * plan.stage_words + thread % kWindowLanes * kWindowXPitch;
    const float* from_y = stages + stage * plan.stage_words + kXWords + thread / kWindowLanes * window_pitch(kStride);
#pragma unroll 1
    for (int i = 0; i < kChunk; i += 4, from_x += 4, from_y += 4 * kStride) {
      alignas(16) float yv[kYWords];
      load_vector(from_y, yv);
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        alignas(16) float xv[4];
        load_vector(from_x + m * kWindowLanes * kWindowXPitch, xv);
#pragma unroll
        for (int p = 0; p < 4; ++p) {
#pragma unroll
          for (int k = 0; k < kWindowTaps; ++k) sums[m][k] += xv[p] * yv[kStride * p + k];
        }
      }
    }
    stage = stage + 1 == kWgradStages ? 0 : stage + 1;
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  const auto of_block = static_cast<int>(ptx::thread_index());
  const bool is_second = of_block >= plan.threads;
  const int own = of_block - (is_second ? plan.threads : 0);
  float* const shared = reinterpret_cast<float*>(memory) + own;  // (64, threads): the second half's sums
  if (is_second) {
#pragma unroll
    for (int i = 0; i < 64; ++i) shared[i * plan.threads] = sums[i / 8][i % 8];
  }
  __syncthreads();
  if (is_second) return;
  // Index: (slice, tile of weights).
  float* out = partial + static_cast<std::int64_t>(ptx::block_index()) * 64 * plan.threads + own;
#pragma unroll
  for (int i = 0; i < 64; ++i) out[i * plan.threads] = sums[i / 8][i % 8] + shared[i * plan.threads];
}

}  // namespace polyphase::cuda::direct
