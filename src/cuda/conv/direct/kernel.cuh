#pragma once
// The general forward/dgrad kernel on FFMA: any S, P, OP, D, G, K and length. The mathematics are in tap_gemm.hpp.
//
// GEMM mapping: gemm_m = positions, gemm_n = columns (channel, class), gemm_k = (row, tap). A block computes kTileP positions
// of one sample and group times kTileC columns. A thread computes kThreadP positions, 32 apart, times kThreadC neighbouring
// columns. In each gemm_k step a thread reads kThreadP words of the source window and kThreadC/4 quads of weights for
// kThreadP*kThreadC FFMAs. Source window and weights pass through three stages of shared memory, by cp.async (f32, f64) or
// converted loads (f16, bf16), with one barrier per step. A block loads each source element once for all taps. Results are
// stored through shared memory (store.cuh). Operations: 2*N*C_in*C_out/G*K*L_in. Bytes: the source once per column tile, the
// weights once per block from L2, the output once.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <cstdint>

#include "cuda/conv/cursor.cuh"
#include "cuda/conv/direct/store.cuh"
#include "cuda/conv/direct/tiling.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/vector.cuh"

namespace polyphase::cuda::direct {

/// The tile that block number `block` computes.
template <int kTileP, int kTileC>
__device__ __forceinline__ Place place_of(std::int64_t block, const TapGemm& gemm, const Steps& steps) {
  Place place;
  if (steps.blocks <= 0x7fffffff) {
    const auto index = static_cast<std::uint32_t>(block);
    const std::uint32_t above_columns = steps.by_column_tiles.divide(index);
    const std::uint32_t above_positions = steps.by_position_tiles.divide(above_columns);
    const std::uint32_t n = steps.by_groups.divide(above_positions);
    place.column = static_cast<std::int64_t>(index - above_columns * steps.by_column_tiles.divisor) * kTileC;
    place.position = static_cast<std::int64_t>(above_columns - above_positions * steps.by_position_tiles.divisor) * kTileP;
    place.g = above_positions - n * steps.by_groups.divisor;
    place.n = n;
  } else {
    place.column = block % steps.column_tiles * kTileC;
    block /= steps.column_tiles;
    place.position = block % steps.position_tiles * kTileP;
    block /= steps.position_tiles;
    place.g = block % gemm.G;
    place.n = block / gemm.G;
  }
  if (steps.row_pitch > 0) {  // tiles count through all samples
    place.n = place.position / steps.row_pitch;
    place.position -= place.n * steps.row_pitch;
  }
  place.position += gemm.position_begin;
  return place;
}

/// Loads source[row][window] when the rows hold the whole window: one warp per row, no bounds tests.
template <class T, int kThreads>
__device__ __forceinline__ void copy_rows(const T* __restrict__ from, std::int64_t length, int rows, int window, T* source) {
  constexpr int kWarps = kThreads / 32;
  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
  from += warp * length + lane;
  source += warp * window + lane;
  for (int r = warp; r < rows; r += kWarps, from += kWarps * length, source += kWarps * window) {
#pragma unroll 4
    for (int u = 0; u < window - lane; u += 32) __pipeline_memcpy_async(source + u, from + u, sizeof(T));
  }
}

/// Fills source[row][plane][window] for one step, with zeros outside the rows of the tensor.
template <class T, class A, int kThreads>
__device__ __forceinline__ void load_source(const TapGemm& gemm, const Steps& steps, const Place& place, const Cursor& cursor,
                                            const T* __restrict__ global, A* source) {
  const std::int64_t row0 = static_cast<std::int64_t>(cursor.row) * steps.rows;
  const int plane0 = cursor.plane * steps.planes;
  const std::int64_t u0 = place.position + static_cast<std::int64_t>(cursor.tap) * steps.taps * gemm.tap_step;
  const std::int64_t e0 = gemm.source_stride * u0 + plane0 * gemm.source_plane_step + gemm.source_origin;
  const T* base = global + ((place.n * gemm.G + place.g) * gemm.rows + row0) * gemm.source_length + e0;
  const int pitch = steps.planes * steps.window;
  const int rows = static_cast<int>(min(static_cast<std::int64_t>(steps.rows), gemm.rows - row0));
  const int planes = static_cast<int>(min(static_cast<std::int64_t>(steps.planes), gemm.planes - plane0));
  if constexpr (std::is_same_v<T, A>) {
    if (steps.planes == 1 && gemm.source_stride == 1 && e0 >= 0 && e0 + steps.window <= gemm.source_length) {
      return copy_rows<T, kThreads>(base, gemm.source_length, rows, steps.window, source);
    }
  }
  // Offsets from e0 fit in 32 bits: a window is a few hundred positions times the stride.
  const int first = static_cast<int>(max(-e0, static_cast<std::int64_t>(-0x7fffffff)));
  const int last = static_cast<int>(min(gemm.source_length - e0, static_cast<std::int64_t>(0x7fffffff)));
  for (int i = static_cast<int>(threadIdx.x); i < pitch; i += kThreads) {
    int u = i, plane = 0;
    if (steps.planes > 1) {
      u = static_cast<int>(steps.by_planes.divide(static_cast<std::uint32_t>(i)));
      plane = i - u * steps.planes;
    }
    const int e = static_cast<int>(gemm.source_stride) * u + plane * static_cast<int>(gemm.source_plane_step);
    const bool inside = e >= first && e < last && plane < planes;
    A* to = source + plane * steps.window + u;
    const T* from = inside ? base + e : global;
    const std::int64_t advance = inside ? gemm.source_length : 0;
    const std::size_t zeros = inside ? 0 : sizeof(A);
#pragma unroll 4
    for (int r = 0; r < rows; ++r, to += pitch, from += advance) {
      if constexpr (std::is_same_v<T, A>) {
        __pipeline_memcpy_async(to, from, sizeof(A), zeros);
      } else {
        *to = inside ? static_cast<A>(*from) : A(0);
      }
    }
  }
}

/// Fills weights[tap][plane][row][kTileC] for one step from a contiguous piece of the packed weights.
template <class A, int kThreads>
__device__ __forceinline__ void load_weights(const Steps& steps, const A* __restrict__ packed, A* weights) {
  constexpr int kVector = 16 / sizeof(A);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * kVector; i < steps.weight_words; i += kThreads * kVector) {
    __pipeline_memcpy_async(weights + i, packed + i, 16);
  }
}

/// Computes the sums of one step. Bits of `masked` mark columns whose class has one tap less, so that they have no tap in
/// window 0. They are skipped there: a non-finite source value must not meet a weight that does not exist.
template <class A, int kTileC, int kThreadP, int kThreadC>
__device__ __forceinline__ void multiply(const TapGemm& gemm, const Steps& steps, const Cursor& cursor, const A* source,
                                         const A* weights, int position, int column, unsigned masked,
                                         A (&sums)[kThreadP][kThreadC]) {
  const int pitch = steps.planes * steps.window;
  const int taps = min(steps.taps, static_cast<int>(gemm.taps) - cursor.tap * steps.taps);
  const int rows = static_cast<int>(
      min(static_cast<std::int64_t>(steps.rows), gemm.rows - static_cast<std::int64_t>(cursor.row) * steps.rows));
  for (int tap = 0; tap < taps; ++tap) {
    const bool ragged = masked != 0 && cursor.tap == 0 && tap == 0;
    const bool last = cursor.tap * steps.taps + tap == gemm.taps - 1;
    const int planes = min(steps.planes, static_cast<int>(last ? gemm.full_planes : gemm.planes) - cursor.plane * steps.planes);
    for (int plane = 0; plane < planes; ++plane) {
      const A* x = source + plane * steps.window + tap * static_cast<int>(gemm.tap_step) + position;
      const A* w = weights + (tap * steps.planes + plane) * steps.rows * kTileC + column;
      auto accumulate = [&](auto skip) {
#pragma unroll(decltype(skip)::value ? 1 : 16 / sizeof(A))
        for (int r = 0; r < rows; ++r, x += pitch, w += kTileC) {
          A xs[kThreadP];
          alignas(16) A ws[kThreadC];
#pragma unroll
          for (int p = 0; p < kThreadP; ++p) xs[p] = x[p * 32];
          load_vector(w, ws);
#pragma unroll
          for (int c = 0; c < kThreadC; ++c) {
            if (decltype(skip)::value && ((masked >> c) & 1U) != 0) continue;
#pragma unroll
            for (int p = 0; p < kThreadP; ++p) sums[p][c] += xs[p] * ws[c];
          }
        }
      };
      if (ragged)
        accumulate(std::true_type{});
      else
        accumulate(std::false_type{});
    }
  }
}

/// Blocks per SM: a thread with more than 64 sums needs twice the registers, so half as many threads fit.
constexpr int resident_blocks(int threads, std::size_t sum_words) { return (sum_words > 64 ? 256 : 512) / threads; }

/// See the top of the file. Dynamic shared memory: shared_words().
template <class T, int kTileP, int kTileC, int kThreadP, int kThreadC>
__global__ void __launch_bounds__(kTileP / kThreadP * (kTileC / kThreadC),
                                  resident_blocks(kTileP / kThreadP * (kTileC / kThreadC),
                                                  kThreadP* kThreadC * sizeof(typename AccumulatorOf<T>::type) / 4))
    tap_gemm_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Steps steps,
                    const __grid_constant__ Epilogue epilogue, const T* __restrict__ source,
                    const typename AccumulatorOf<T>::type* __restrict__ packed, const T* __restrict__ bias,
                    T* __restrict__ out) {
  using A = typename AccumulatorOf<T>::type;
  constexpr int kThreads = kTileP / kThreadP * (kTileC / kThreadC);
  constexpr int kWarpP = 32 * kThreadP, kWarpsP = kTileP / kWarpP;
  static_assert(kTileP % kWarpP == 0, "a warp shares its columns");
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Place place;                          // in shared memory because the sums need the registers
  A* const stages = reinterpret_cast<A*>(memory);  // kStages x (source_words + weight_words)
  const int stage_words = steps.source_words + steps.weight_words;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int position = warp % kWarpsP * kWarpP, column = warp / kWarpsP * kThreadC;
  const int count = steps.row_steps * steps.plane_steps * steps.tap_steps;

  for (std::int64_t block = blockIdx.x; block < steps.blocks; block += gridDim.x) {
    if (threadIdx.x == 0) place = place_of<kTileP, kTileC>(block, gemm, steps);
    __syncthreads();
    if (epilogue.has_aux()) prefetch_with_aux(gemm, steps, place, kTileP, kTileC, epilogue, out);
    unsigned masked = 0;
    if (gemm.full_classes < gemm.classes) {
#pragma unroll
      for (int c = 0; c < kThreadC; ++c) {
        const auto index = static_cast<std::uint32_t>(place.column + column + c);
        const std::uint32_t a = index - steps.by_classes.divide(index) * steps.by_classes.divisor;
        masked |= (gemm.lacks_first_tap(a) ? 1U : 0U) << c;
      }
    }
    A sums[kThreadP][kThreadC] = {};
    Cursor ahead, now;
    auto fetch = [&](int step, A* to) {
      if (step < count) {
        const std::int64_t tile = place.g * steps.column_tiles + place.column / kTileC;
        load_source<T, A, kThreads>(gemm, steps, place, ahead, source, to);
        load_weights<A, kThreads>(steps, packed + (tile * count + step) * steps.weight_words, to + steps.source_words);
        ahead.advance(steps);
      }
      __pipeline_commit();
    };
    for (int i = 0; i < kStages - 1; ++i) fetch(i, stages + i * stage_words);
    int stage = 0;
    for (int step = 0; step < count; ++step) {
      __pipeline_wait_prior(kStages - 2);
      __syncthreads();  // this step's stage is filled, and no thread still reads the stage to fill next
      fetch(step + kStages - 1, stages + (stage == 0 ? kStages - 1 : stage - 1) * stage_words);
      const A* from = stages + stage * stage_words;
      multiply<A, kTileC, kThreadP, kThreadC>(gemm, steps, now, from, from + steps.source_words, position + lane, column,
                                              masked, sums);
      now.advance(steps);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    __syncthreads();  // no thread still reads the stages
    const bool is_active = activate_early<T>(gemm, steps, place, column, bias, epilogue, sums);
    const WarpTile<A> own{lane, position, column, stages + warp * kThreadC * sum_pitch(kWarpP)};
#pragma unroll
    for (int c = 0; c < kThreadC; ++c) {
#pragma unroll
      for (int p = 0; p < kThreadP; ++p) own.sums[c * sum_pitch(kWarpP) + lane + p * 32] = sums[p][c];
    }
    store_warp<T, A, kWarpP, kThreadC>(gemm, steps, place, bias, epilogue, is_active, out, own);
    __syncthreads();
  }
}

}  // namespace polyphase::cuda::direct
