#pragma once
// The depthwise weight gradient in vectors: read vector.cuh first. Device code of vector.cu.
//
//   w[r + (steps - 1 - j)*S - sigma] = sum over n, t, u of y[t + u*S + r] * x[(t + P + sigma)/S + u - (steps - 1) + j]
// with t over a row's vectors. A block computes one output channel for one slice of the (sample, tile) pairs. A thread keeps
// the steps x S sums of its vectors in registers over the whole slice. A thread copies its elements of y to its own 16 bytes of
// shared memory one tile ahead, which needs no registers.

#include "cuda/conv/depthwise/vector.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kWgradThreads = 64;  // at most: three stages of y and x in 18 KiB
inline constexpr int kWgradStages = 3;

/// Sums per thread: a power of two of at least steps x S.
template <int S>
inline constexpr int kWgradSums = S == 4 ? 32 : 16;

/// Adds kCount sums over a warp; each exchange halves the sums that a lane keeps. Lane l returns sum l / (32/kCount).
template <int kCount, int kOffset = 16>
__device__ __forceinline__ float fold_warp(const float (&sums)[kCount], int lane) {
  if constexpr (kOffset == 0) {
    return sums[0];
  } else if constexpr (kCount == 1) {
    const float both[1] = {sums[0] + __shfl_xor_sync(0xffffffffU, sums[0], kOffset)};
    return fold_warp<1, kOffset / 2>(both, lane);
  } else {
    const bool upper = (lane & kOffset) != 0;
    float kept[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float given = __shfl_xor_sync(0xffffffffU, upper ? sums[i] : sums[i + kCount / 2], kOffset);
      kept[i] = (upper ? sums[i + kCount / 2] : sums[i]) + given;
    }
    return fold_warp<kCount / 2, kOffset / 2>(kept, lane);
  }
}

/// sums[j*S + r] += sum over the vectors v and u of values[v][u*S + r] * window(v, u + j) for j < kCount, `stage` as in
/// add_steps.
template <int S, int kCount, int V>
__device__ __forceinline__ void add_products(const float* stage, const float (&values)[V][4], float (&sums)[kWgradSums<S>]) {
  constexpr int U = 4 / S;
  float window[V][((kCount + U - 2) / U + 1) * U];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (j == 0 || (j - 1) % U == 0) {
        const int group = (j + U - 1) / U;
        read_words<U>(stage + (v * 32 + group) * U, window[v] + group * U);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j * S + i % S] += values[v][i] * window[v][i / S + j];
    }
  }
}

/// A tile of one sample's row, and the step to the next tile.
template <int S>
struct WgradTile {
  const float *x, *y;  // rows
  int tile;
  int t, x_begin;  // the tile's first output; its window of x

  __device__ __forceinline__ void enter_row(const VectorPlan& plan, int width, int steps) {
    t = tile * width - misalignment(y, kVectorLine);
    const int behind = t + plan.P + S - 1;
    x_begin = (behind - (behind & (S - 1))) / S - (steps - 1);  // the next phase 0
  }
  __device__ __forceinline__ void advance(const VectorPlan& plan, int width, int steps) {
    t += width, x_begin += width / S;
    if (++tile < plan.tiles) return;
    const std::int64_t C_out = plan.by_channels.divisor;
    const std::int64_t C_in = plan.by_outputs.divide(plan.by_channels.divisor);
    tile = 0;
    x += C_in * plan.L_in;
    y += C_out * plan.L_out;
    enter_row(plan, width, steps);
  }
};

/// partial (slices, C_out, K). Shared memory: stages of y (V vectors per thread) and x, reused for the warps' sums.
template <int S>
__global__ void __launch_bounds__(kWgradThreads, 8)
    vector_wgrad_kernel(const __grid_constant__ VectorPlan plan, const float* x, const float* y, float* partial) {
  constexpr int V = kVectors, U = 4 / S, kSums = kWgradSums<S>;
  extern __shared__ __align__(16) unsigned char memory[];
  float* const stages = reinterpret_cast<float*>(memory);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), lane = thread % 32;
  const int channel = static_cast<int>(plan.by_slices.divide(blockIdx.x));
  const int slice = static_cast<int>(blockIdx.x) - channel * plan.slices;
  const std::int64_t C_out = plan.by_channels.divisor, C_in = plan.by_outputs.divide(plan.by_channels.divisor);
  const int first_item = slice * plan.tiles_per_slice;
  const int width = threads * V * 4;

  const int n = static_cast<int>(plan.by_tiles.divide(static_cast<unsigned>(first_item)));
  WgradTile<S> place{};
  place.x = x + (n * C_in + plan.by_outputs.divide(static_cast<unsigned>(channel))) * plan.L_in;
  place.y = y + (n * C_out + channel) * plan.L_out;
  place.tile = first_item - n * plan.tiles;
  const int sigma = (misalignment(place.y, S) - plan.P) & (S - 1);  // the same in every sample
  const int steps = (plan.K + sigma + S - 1) / S;
  place.enter_row(plan, width, steps);
  WgradTile<S> ahead = place;
  const int first_vector = (thread / 32) * 32 * V + lane;  // the next are 32 further on

  wait_for_grid_before();
  float sums[kSums] = {};
  pipeline<kWgradStages>(
      min(plan.tiles_per_slice, plan.items - first_item),
      [&](int, int stage) {
        float* to = stages + stage * plan.stage_words;
        fetch_vectors<V>(ahead.y, plan.L_out, ahead.t + first_vector * 4, to + first_vector * 4);
        fetch_words<V * U>(ahead.x, plan.L_in, ahead.x_begin, threads * V * U + steps - 1, to + threads * V * 4);
        ahead.advance(plan, width, steps);
      },
      [] {},
      [&](int, int stage) {
        constexpr int kTurn = 2;  // vectors at a time
        const float* vectors = stages + stage * plan.stage_words + first_vector * 4;
        const float* window = stages + stage * plan.stage_words + threads * V * 4 + first_vector * U;
        int t = place.t + first_vector * 4;
        with_count<kMostSteps<S>>(steps, [&](auto count) {
#pragma unroll 1
          for (int v = 0; v < V && t < plan.L_out; v += kTurn, t += kTurn * 128) {
            float values[kTurn][4];
#pragma unroll
            for (int p = 0; p < kTurn; ++p) get_words(vectors + p * 128, values[p]);
            add_products<S, decltype(count)::value>(window, values, sums);
            vectors += kTurn * 128, window += kTurn * 32 * U;
          }
        });
        place.advance(plan, width, steps);
      });

  __syncthreads();                                            // no thread still reads the stages
  float* const warp_sums = reinterpret_cast<float*>(memory);  // (warps, kSums)
  const float sum = fold_warp(sums, lane);
  if (lane % (32 / kSums) == 0) warp_sums[thread / 32 * kSums + lane / (32 / kSums)] = sum;
  __syncthreads();
  for (int slot = thread; slot < steps * S; slot += threads) {
    float total = 0;
    for (int warp = 0; warp < threads / 32; ++warp) total += warp_sums[warp * kSums + slot];
    const int k = slot % S + (steps - 1 - slot / S) * S - sigma;
    if (k >= 0 && k < plan.K) partial[(slice * C_out + channel) * plan.K + k] = total;
  }
}

}  // namespace polyphase::cuda::depthwise
