#pragma once
// Recomputes suspect sums with FFMA. The warp that summed them does it when it has stored all its tiles: every sum of a tile
// with a number that has no operand, else the sums so near zero that the numbers too small to be split could count.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/suspect_count.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/pipeline/suspect_tiles.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"

namespace polyphase::cuda::tensor_core {

/// Computes again what may be wrong of a column's `count` outputs at `position` and behind: to[at_of(i)], where that is not
/// negative. By a whole warp, which can see what has been stored; it reads many outputs at a time, since each takes as long to
/// arrive as several sums. Few of them have their sums by all lanes.
template <class AtOf>
__device__ __forceinline__ void recompute_outputs(const TapGemm& gemm, const ExactSource<>& exact, std::int64_t n,
                                                  std::int64_t g, std::int64_t column, std::int64_t position, int count,
                                                  float* to, const AtOf& at_of, float offset, float least, bool everything) {
  constexpr int kAtOnce = 8, kFew = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int first = 0; first < count; first += 32 * kAtOnce) {
    float results[kAtOnce];
    std::uint32_t again = 0;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int own = first + j * 32 + lane;
      const std::int64_t at = own < count ? at_of(own) : -1;
      results[j] = at >= 0 ? to[at] : 0.0F;
      if (at >= 0) again |= 1U << j;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (!everything && fabsf(results[j] - offset) >= least) again &= ~(1U << j);
#pragma unroll 1
    for (int j = 0; j < kAtOnce; ++j) {
      const bool is_own = (again >> j & 1U) != 0;
      const int own = first + j * 32;
      std::uint32_t lanes = __ballot_sync(0xffffffffU, is_own);
      if (__popc(lanes) > kFew) {
        if (is_own) to[at_of(own + lane)] = own_exact_sum(gemm, exact, n, g, column, position + own + lane) + offset;
        continue;
      }
      for (; lanes != 0; lanes &= lanes - 1) {
        const int of = __ffs(static_cast<int>(lanes)) - 1;
        const float sum = exact_sum(gemm, exact, exact.is_forward, n, g, column, position + own + of);
        if (lane == of) to[at_of(own + lane)] = sum + offset;
      }
    }
  }
}

/// Computes again what may be wrong in one tile's columns [first, end), of `positions` positions, where `columns` has them
/// (SuspectTiles). `least`: of outputs less their bias.
__device__ __forceinline__ void recompute_columns(const TapGemm& gemm, const Tiling& tiling, const ExactSource<>& exact,
                                                  const float* bias, float* out, const TilePlace& place, std::int64_t first,
                                                  std::int64_t end, std::uint32_t columns, int positions, float least,
                                                  bool everything) {
  const std::int64_t t_of_tile = gemm.out_stride * place.position + gemm.out_origin;
  const RowRange range(gemm, tiling, t_of_tile);
#pragma unroll 1
  for (std::int64_t column = first; column < end; ++column) {
    if ((columns >> (column - first) % 8 & 1U) == 0) continue;
    const std::int64_t channel = column / gemm.classes, row = place.g * gemm.out_channels + channel;
    float* const to = out + (place.n * gemm.G * gemm.out_channels + row) * gemm.out_length + t_of_tile;
    const std::int64_t shift = range.shift_of(to), a = (column - channel * gemm.classes) * gemm.out_class_step;
    const float offset = bias != nullptr ? bias[row] : 0.0F;
    const auto at_of = [&](int own) -> std::int64_t {
      const std::int64_t at = gemm.out_stride * own + a;
      const bool is_own = range.mask == 0 || (at >= shift && at < shift + range.length);
      return is_own && at >= range.begins && at < range.ends ? at : -1;
    };
    recompute_outputs(gemm, exact, place.n, place.g, column, place.position, positions, to, at_of, offset, least, everything);
  }
}

/// Computes again what may be wrong in a warp's tiles, which are all stored: columns [first, first + columns) of each tile.
/// Sums became outputs by 2^exponent. Not inlined: it has registers of its own.
template <class Operand>
__device__ __noinline__ void recompute_tiles(const TapGemm& gemm, const Tiling& tiling, const ExactSource<>& exact,
                                             const float* bias, float* out, Walk walk, SuspectTiles suspect_tiles, int exponent,
                                             int first, int columns, int positions) {
  __syncwarp();
#pragma unroll 1
  for (int i = 0; i < suspect_tiles.count; ++i) {
    const SuspectTiles::Entry entry = suspect_tiles.of[i];
    walk.above = entry.above;
    do {
      const TilePlace place = walk.place(tiling);
      const std::int64_t of_tile = min(place.column + tiling.columns, gemm.columns);
      recompute_columns(gemm, tiling, exact, bias, out, place, place.column + first,
                        min(place.column + first + columns, of_tile), entry.columns, positions,
                        ldexpf(least_right<Operand>(entry.suspect_count), exponent), entry.suspect_count >= kNeverSplit);
      walk.advance();
    } while (i == SuspectTiles::kMost - 1 && walk.more());
  }
}

}  // namespace polyphase::cuda::tensor_core
