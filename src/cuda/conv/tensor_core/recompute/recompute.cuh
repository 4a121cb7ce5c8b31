#pragma once
// Recomputes suspect sums. The warp that summed them does it when it has stored all its tiles: every sum of a tile
// with a number that has no operand, else the sums so near zero that the numbers too small to be split could count.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/suspect_count.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/pipeline/suspect_tiles.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/conv/tensor_core/recompute/recompute_block.cuh"

namespace polyphase::cuda::tensor_core {

/// What recompute_light() recomputes: outputs whose distance from their bias is below `least`, or all of them.
struct SuspectBound {
  float least;
  bool everything;
};

/// Two columns of a lane, its block's lane/4 and lane/4 + 8: outputs at to[c][at], biases.
struct LightColumns {
  std::int64_t columns[2];  // negative: there is none
  float* to[2];
  float offsets[2];
};

/// Recomputes what may be wrong of 16 columns' `count` outputs from `position` on, which are stored as sums and biases:
/// at_of(c, i) is the place of output i in the lane's row c, or negative.
template <class AtOf>
__device__ __forceinline__ void recompute_light(const TapGemm& gemm, const ExactSource<>& exact, std::int64_t n, std::int64_t g,
                                                const LightColumns& own, std::int64_t position, int count, const AtOf& at_of,
                                                const SuspectBound& bound) {
  constexpr int kVectors = 4, kPositions = 8 * kVectors;
#pragma unroll 1
  for (int first = 0; first < count; first += kPositions) {
    const auto address = [&](int c, int j) -> float* {
      const std::int64_t at = own.columns[c] >= 0 && first + j < count ? at_of(c, first + j) : -1;
      return at >= 0 ? own.to[c] + at : nullptr;
    };
    const std::uint32_t suspects = suspects_of_block<1, kVectors>(
        address, [&](int c, float stored) { return bound.everything || !(fabsf(stored - own.offsets[c]) >= bound.least); });
    recompute_block<1, kVectors>(gemm, exact, g, own.columns, suspects, [&](int j) {
      return SumPosition{first + j < count ? n : -1, position + first + j};
    });
  }
}

/// Recomputes what may be wrong in one tile's columns [first, end), at most 16, of `positions` positions, where `columns` has
/// them (SuspectTiles).
__device__ __forceinline__ void recompute_columns(const TapGemm& gemm, const Tiling& tiling, const ExactSource<>& exact,
                                                  const float* bias, float* out, const TilePlace& place, std::int64_t first,
                                                  std::int64_t end, std::uint32_t columns, int positions,
                                                  const SuspectBound& bound) {
  const std::int64_t t_of_tile = gemm.out_stride * place.position + gemm.out_origin;
  const RowRange range(gemm, tiling, t_of_tile);
  LightColumns own;
  std::int64_t shifts[2], starts[2];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const std::int64_t column = first + static_cast<std::int64_t>(threadIdx.x % 32 / 4) + 8 * c;
    const bool exists = column < end && (columns >> (column - first) % 8 & 1U) != 0;
    const std::int64_t channel = column / gemm.classes, row = place.g * gemm.out_channels + channel;
    own.columns[c] = exists ? column : -1;
    own.to[c] = out + (place.n * gemm.G * gemm.out_channels + row) * gemm.out_length + t_of_tile;
    own.offsets[c] = exists && bias != nullptr ? bias[row] : 0.0F;
    shifts[c] = range.shift_of(own.to[c]);
    starts[c] = (column - channel * gemm.classes) * gemm.out_class_step;
  }
  const auto at_of = [&](int c, int i) -> std::int64_t {
    const std::int64_t at = gemm.out_stride * i + starts[c];
    const bool is_own = range.mask == 0 || (at >= shifts[c] && at < shifts[c] + range.length);
    return is_own && at >= range.begins && at < range.ends ? at : -1;
  };
  recompute_light(gemm, exact, place.n, place.g, own, place.position, positions, at_of, bound);
}

/// Recomputes what may be wrong in a warp's tiles, which are all stored: columns [first, first + columns) of each tile.
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
                        {ldexpf(least_right<Operand>(entry.suspect_count), exponent), entry.suspect_count >= kNeverSplit});
      walk.advance();
    } while (i == SuspectTiles::kMost - 1 && walk.more());
  }
}

}  // namespace polyphase::cuda::tensor_core
