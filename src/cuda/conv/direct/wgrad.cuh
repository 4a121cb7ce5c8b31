#pragma once
// The general weight-gradient kernel on FFMA: dw[ci,co,k] = sum over n, i of x[n,ci,i] * y[n,co,S*i + k*D - P_l].
//
// GEMM mapping: gemm_m = ci, gemm_n = (tap, co), gemm_k = (n, i). Taps Sg apart read the same phase of y, Dg low-rate positions
// apart (tap_gemm.hpp), so a tile of consecutive taps needs min(taps, Sg) planes of y: slot s holds y[S*(i + u) + (tap0 + s)*D
// - P_l]. A chunk of kChunk positions of x and these planes is stored position-major in shared memory. A thread reads 8 ci and
// 8 co of one position as four quads for 64 FFMAs. There are three stages, filled by cp.async, with one barrier per step. A
// block computes ci_tile x (tap_tile x co_tile) weights of one group for one slice of gemm_k. The slices depend on the shape
// and the number of SMs; their partial sums are added in a fixed order in f64, so the result has the same bits every run.
// Partial sums are stored in thread order, so that a warp writes 32 neighbouring words; reduce_slices maps them to weights.

#include <cuda_pipeline.h>

#include <cstdint>
#include <type_traits>

#include "conv/problem.hpp"
#include "cuda/conv/direct/pack.cuh"
#include "cuda/conv/direct/wgrad_tiling.hpp"
#include "cuda/conv/vector.cuh"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::direct {

/// A launch of the weight-gradient kernel, computed on the host.
struct WgradPlan {
  int ci_tile, co_tile, tap_tile;  // per block; ci_tile and co_tile are multiples of 8
  int ci_tiles, co_tiles, tap_tiles;
  int planes, tap_step;  // slots of a tile of taps; Dg
  int window;            // positions of one plane in a stage: odd
  int x_pitch, y_pitch, stage_words;
  int threads;             // ci_tile/8 * tap_tile * co_tile/8 rounded up to warps
  int x_across, y_across;  // warps next to each other along the channels of a copy, powers of two
  std::int64_t chunks_per_row, chunks, slices, chunks_per_slice, blocks;
  std::int64_t slots;  // partial sums of a slice: (tile of weights, 64 sums of a thread, thread)
};

/// The place of a position of y's window in the row (from the chunk's first) and in a stage.
struct alignas(16) YPlace {
  std::int64_t element;
  int slot;
};

/// The coordinates of a thread's sums.
struct WgradThread {
  int ci, column, tap, co;  // of its first sum, within the block's tile; column = (tap, co_lane)
  bool works;
};
[[nodiscard]] __host__ __device__ __forceinline__ WgradThread wgrad_thread(const WgradPlan& plan, int thread) {
  const int ci_lanes = plan.ci_tile / 8, co_lanes = plan.co_tile / 8;
  const int column = thread / ci_lanes;
  return {thread % ci_lanes * 4, column, column / co_lanes, column % co_lanes * 4, column < plan.tap_tile * co_lanes};
}

/// The tile of weights that block `index` of a slice computes.
struct WgradTile {
  std::int64_t g;
  int ci, co, tap;  // its first ci, co and tap
};
template <class Index>
[[nodiscard]] __host__ __device__ __forceinline__ WgradTile wgrad_tile(const WgradPlan& plan, Index index) {
  Digits<Index> digits{index};
  WgradTile tile{};
  tile.tap = static_cast<int>(digits.take(plan.tap_tiles)) * plan.tap_tile;
  tile.co = static_cast<int>(digits.take(plan.co_tiles)) * plan.co_tile;
  tile.ci = static_cast<int>(digits.take(plan.ci_tiles)) * plan.ci_tile;
  tile.g = static_cast<std::int64_t>(digits.rest);
  return tile;
}

/// Maps a slot of the partial sums to its weight, or to -1.
struct WgradPlaceOf {
  WgradPlan plan;
  int ci_per_group, co_per_group, K;
  FastDivide by_threads;

  [[nodiscard]] __device__ __forceinline__ std::int64_t at(WgradTile tile, int sum, int thread) const {
    const WgradThread own = wgrad_thread(plan, thread);
    const int ci = tile.ci + own.ci + (sum >> 3 & 3) + (sum >> 5) * (plan.ci_tile / 2);
    const int co = tile.co + own.co + (sum & 3) + (sum >> 2 & 1) * (plan.co_tile / 2);
    const int tap = tile.tap + own.tap;
    if (!own.works || ci >= ci_per_group || co >= co_per_group || tap >= K) return -1;
    return ((tile.g * ci_per_group + ci) * co_per_group + co) * K + tap;
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t operator()(std::int64_t slot) const {
    if (plan.slots < std::int64_t{1} << 31) {
      const auto index = static_cast<std::uint32_t>(slot);
      const std::uint32_t above = by_threads.divide(index);
      return at(wgrad_tile(plan, above / 64), static_cast<int>(above % 64),
                static_cast<int>(index - above * by_threads.divisor));
    }
    Digits<std::uint64_t> digits{static_cast<std::uint64_t>(slot)};
    const int thread = static_cast<int>(digits.take(plan.threads)), sum = static_cast<int>(digits.take(64));
    return at(wgrad_tile(plan, digits.rest), sum, thread);
  }
};

/// to[slot(position)][channel] = from[channel][element(position)]. A warp moves eight positions of four channels, which uses
/// every bank once; `across` warps share the channels. `place(position)` gives both indices. With kWhole all positions lie in
/// the row [0, length) and all channels exist.
template <bool kWhole, class T, class A, class Place>
__device__ __forceinline__ void load_transposed(const T* __restrict__ from, std::int64_t origin, std::int64_t length,
                                                int channels, int channel_tile, int count, int across, A* to, const T* any,
                                                Place&& place_of) {
  const int warp = static_cast<int>(threadIdx.x) >> 5, warps = static_cast<int>(blockDim.x) >> 5;
  const int lane_position = static_cast<int>(threadIdx.x) & 7, lane_channel = static_cast<int>(threadIdx.x) >> 3 & 3;
  const int quads = channel_tile / 4;
  const int first_quad = warp & (across - 1), first_block = warp / across, block_step = warps / across;
  if (first_block >= block_step) return;
  for (int position = first_block * 8 + lane_position; position < count; position += 8 * block_step) {
    const YPlace place = place_of(position);
    const std::int64_t element = origin + place.element;
    const bool in_row = kWhole || (element >= 0 && element < length);
    int channel = first_quad * 4 + lane_channel;
    A* at = to + place.slot + channel;
    const T* source = from + channel * length + element;
#pragma unroll 4
    for (int quad = first_quad; quad < quads; quad += across, at += across * 4, source += across * 4 * length) {
      const bool inside = kWhole || (in_row && channel < channels);
      if constexpr (std::is_same_v<T, A>) {
        __pipeline_memcpy_async(at, inside ? source : any, sizeof(A), inside ? 0 : sizeof(A));
      } else {
        *at = inside ? static_cast<A>(*source) : A(0);
      }
      channel += across * 4;
    }
  }
}

template <class T, class A>
__global__ void __launch_bounds__(256, sizeof(A) == 4 ? 2 : 1)
    wgrad_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ WgradPlan plan, const T* __restrict__ x,
                 const T* __restrict__ y, A* __restrict__ partial) {
  extern __shared__ __align__(16) unsigned char memory[];
  A* const stages = reinterpret_cast<A*>(memory);  // kWgradStages x (x: kChunk x x_pitch, y: planes x window x y_pitch)
  const int ci_per_group = static_cast<int>(problem.C_in / problem.G),
            co_per_group = static_cast<int>(problem.C_out / problem.G);
  const std::uint32_t tiles = gridDim.x / static_cast<std::uint32_t>(plan.slices);
  const std::uint32_t slice = blockIdx.x / tiles, index = blockIdx.x - slice * tiles;
  const WgradTile tile = wgrad_tile(plan, index);
  const std::int64_t g = tile.g;
  const int ci0 = tile.ci, co0 = tile.co, tap0 = tile.tap;
  const WgradThread own = wgrad_thread(plan, static_cast<int>(threadIdx.x));
  const bool works = own.works && tap0 + own.tap < problem.K;
  const int own_slot = own.tap % plan.planes, own_window = own.tap / plan.planes;
  const int x_offset = own.ci;  // this thread's channels: 4 here, 4 half a tile further on
  const int y_offset = kChunk * plan.x_pitch + (own_slot * plan.window + own_window * plan.tap_step) * plan.y_pitch + own.co;
  const int x_half = plan.ci_tile / 2, y_half = plan.co_tile / 2;

  const std::int64_t first_chunk = static_cast<std::int64_t>(slice) * plan.chunks_per_slice;
  const int count = static_cast<int>(min(plan.chunks_per_slice, plan.chunks - first_chunk));
  // One entry per position of y's window: dividing at every step would cost a third of the time of the products.
  YPlace* const places = reinterpret_cast<YPlace*>(stages + kWgradStages * plan.stage_words);  // (window * planes)
  for (int i = static_cast<int>(threadIdx.x); i < plan.window * plan.planes; i += plan.threads) {
    const int u = i / plan.planes, plane = i - u * plan.planes;
    places[i] = {problem.S * u + plane * problem.D, (plane * plan.window + u) * plan.y_pitch};
  }
  const int x_channels = ci_per_group - ci0, y_channels = co_per_group - co0;
  const bool whole_tile = x_channels >= plan.ci_tile && y_channels >= plan.co_tile;
  const std::int64_t reach = problem.S * (plan.window - 1) + (plan.planes - 1) * problem.D;  // length of y's window
  // The next chunk to fetch.
  const std::int64_t first_n = first_chunk / plan.chunks_per_row;
  std::int64_t i0 = (first_chunk - first_n * plan.chunks_per_row) * kChunk;
  const T* x_rows = x + ((first_n * problem.G + g) * ci_per_group + ci0) * problem.L_in;
  const T* y_rows = y + ((first_n * problem.G + g) * co_per_group + co0) * problem.L_out;
  auto fetch = [&](int to) {
    A* stage = stages + to * plan.stage_words;
    const std::int64_t origin = problem.S * i0 + tap0 * problem.D - problem.P_l;
    auto load = [&](auto whole) {
      constexpr bool kWhole = decltype(whole)::value;
      load_transposed<kWhole, T, A>(x_rows, i0, problem.L_in, x_channels, plan.ci_tile, kChunk, plan.x_across, stage, x,
                                    [&](int position) {
                                      return YPlace{position, position * plan.x_pitch};
                                    });
      load_transposed<kWhole, T, A>(y_rows, origin, problem.L_out, y_channels, plan.co_tile, plan.window * plan.planes,
                                    plan.y_across, stage + kChunk * plan.x_pitch, y,
                                    [&](int position) { return places[position]; });
    };
    if (whole_tile && i0 + kChunk <= problem.L_in && origin >= 0 && origin + reach < problem.L_out) {
      load(std::true_type{});
    } else {
      load(std::false_type{});
    }
    i0 += kChunk;
    if (i0 < problem.L_in) return;
    i0 = 0;
    x_rows += problem.C_in * problem.L_in;
    y_rows += problem.C_out * problem.L_out;
  };

  A sums[8][8] = {};
  __syncthreads();
  for (int step = 0; step < kWgradStages - 1; ++step) {
    if (step < count) fetch(step);
    __pipeline_commit();
  }
  int stage = 0, fetch_stage = kWgradStages - 1;
  for (int step = 0; step < count; ++step) {
    __pipeline_wait_prior(kWgradStages - 2);
    __syncthreads();  // this step's stage is filled, and no thread still reads the stage to fill next
    if (step + kWgradStages - 1 < count) fetch(fetch_stage);
    __pipeline_commit();
    if (works) {
      const A* xs = stages + stage * plan.stage_words + x_offset;
      const A* ys = stages + stage * plan.stage_words + y_offset;
#pragma unroll 4
      for (int i = 0; i < kChunk; ++i, xs += plan.x_pitch, ys += plan.y_pitch) {
        alignas(16) A xv[8], yv[8];
        load_vector(xs, reinterpret_cast<A(&)[4]>(xv));
        load_vector(xs + x_half, reinterpret_cast<A(&)[4]>(xv[4]));
        load_vector(ys, reinterpret_cast<A(&)[4]>(yv));
        load_vector(ys + y_half, reinterpret_cast<A(&)[4]>(yv[4]));
#pragma unroll
        for (int m = 0; m < 8; ++m)
#pragma unroll
          for (int c = 0; c < 8; ++c) sums[m][c] += xv[m] * yv[c];
      }
    }
    stage = stage + 1 == kWgradStages ? 0 : stage + 1;
    fetch_stage = fetch_stage + 1 == kWgradStages ? 0 : fetch_stage + 1;
  }
  A* out = partial + slice * plan.slots + static_cast<std::int64_t>(index) * 64 * plan.threads + threadIdx.x;
#pragma unroll
  for (int m = 0; m < 8; ++m) {
#pragma unroll
    for (int c = 0; c < 8; ++c) out[(m * 8 + c) * plan.threads] = sums[m][c];
  }
}

}  // namespace polyphase::cuda::direct
