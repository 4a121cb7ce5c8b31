#pragma once
// What operands of f32 numbers may have got wrong, computed again with FFMA by the warp that summed it, when it has stored all
// its tiles: everything where a number had no operand, else the sums so near zero that the numbers too small to be split count.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/both_in_shared/stationary/layout.cuh"
#include "cuda/conv/tensor_core/both_in_shared/stationary/store.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kWeightHeaderBytes = 256;  // a State lies before kept weights

/// The problem as it was before operands were made of it.
struct ExactSource {
  ConvProblem problem;
  bool is_forward;
  const float* source;
  const float* w;
};

/// What is wrong with the numbers of a tile: how many are too small to be split, and kNeverSplit more for each that has no
/// operand. A warp's faults are its threads' added up, of 2^15 numbers a thread.
using SuspectCount = std::uint32_t;
inline constexpr SuspectCount kNeverSplit = 1U << 20;

/// Those of a thread's source numbers: `small` of them are too small, `most` are the largest halves.
__device__ __forceinline__ SuspectCount suspect_count_of(std::uint32_t small, __half2 most) {
  const float2 largest = __half22float2(most);
  return small + (largest.x <= kLargestHalf && largest.y <= kLargestHalf ? 0U : kNeverSplit);
}
/// Those of a thread's numbers and of more of its numbers: kNeverSplit counts once.
__device__ __forceinline__ SuspectCount joined(SuspectCount a, SuspectCount b) {
  return ((a & (kNeverSplit - 1)) + (b & (kNeverSplit - 1))) | ((a | b) & kNeverSplit);
}
/// That of one number.
__device__ __forceinline__ SuspectCount suspect_count_of_number(Split split) {
  return split == Split::never ? kNeverSplit : split == Split::small ? 1U : 0U;
}
/// Those of packed weights, of which each sum has up to `products`.
__device__ __forceinline__ SuspectCount weight_suspect_count(Split worst, std::int64_t products) {
  if (worst == Split::never) return kNeverSplit;
  return worst == Split::small ? static_cast<SuspectCount>(products) : 0;
}
/// Those that four converting warps have found in a tile and left at `found` in shared memory, and those of the weights: the
/// same in a warp, through a shuffle, so that the compiler knows it. Only the lane that gives the stage back reads them, so
/// that none can be late.
__device__ __forceinline__ SuspectCount suspect_count_of_tile(const unsigned char* found, SuspectCount of_weights, int lane) {
  uint4 of_warps{};
  if (lane == 0) of_warps = *reinterpret_cast<const uint4*>(found);
  return __shfl_sync(0xffffffffU, of_weights + of_warps.x + of_warps.y + of_warps.z + of_warps.w, 0);
}
/// The magnitude from which on a sum is right whatever it has lost: each number too small counts in it once.
template <class Operand>
__device__ __forceinline__ float least_right(SuspectCount suspect_count) {
  return static_cast<float>(Operand::kLeastSafe) * static_cast<float>(suspect_count);
}

/// Whether one of a warp's sums is below `least`, of 16 columns of which `columns` exist: a thread has two sums of column
/// lane/4, then two of column lane/4 + 8, and so on. For whole warps.
template <int kSums>
__device__ __forceinline__ bool has_sum_below(float least, std::int64_t columns, const float (&sums)[kSums]) {
  float smallest[2] = {least, least};
#pragma unroll
  for (int i = 0; i < kSums; ++i) smallest[i / 2 % 2] = fminf(smallest[i / 2 % 2], fabsf(sums[i]));
  const auto column = static_cast<std::int64_t>(threadIdx.x % 32 / 4);
  return __any_sync(0xffffffffU, (smallest[0] < least && column < columns) || (smallest[1] < least && column + 8 < columns)) !=
         0;
}

/// The tiles in which a warp has sums that may be wrong, in shared memory. When there is no more place the last one stands for
/// all tiles from it on.
struct SuspectTiles {
  static constexpr int kMost = 16;
  static constexpr std::uint32_t kAnyColumn = 0xff;
  struct Entry {
    std::uint32_t above;              // Walk's
    SuspectCount suspect_count : 24;  // at most kNeverSplit
    std::uint32_t columns : 8;
  };
  Entry* of;
  int count = 0;
  /// By a whole warp. Bit i of `columns`: columns i and i + 8 of the warp's have such sums.
  __device__ __forceinline__ void add(std::uint32_t above, SuspectCount suspect_count, std::uint32_t columns = kAnyColumn) {
    if (threadIdx.x % 32 == 0) {
      const SuspectCount own = min(suspect_count, kNeverSplit);
      if (count < kMost)
        of[count] = {above, own, columns};
      else
        of[kMost - 1] = {of[kMost - 1].above, max(static_cast<SuspectCount>(of[kMost - 1].suspect_count), own), kAnyColumn};
    }
    count = min(count + 1, kMost);
  }
};

/// One output of forward or dgrad by FFMA, of each lane for itself.
__device__ __forceinline__ float own_exact_sum(const TapGemm& gemm, const ExactSource& exact, std::int64_t n, std::int64_t g,
                                               std::int64_t column, std::int64_t position) {
  const ConvProblem& problem = exact.problem;
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  const std::int64_t channel = column / gemm.classes, a = column - channel * gemm.classes;
  float sum = 0;
  for (std::int64_t plane = 0; plane < gemm.planes; ++plane) {
    for (std::int64_t window = 0; window < gemm.taps; ++window) {
      const std::int64_t k =
          (exact.is_forward ? a : plane) + (exact.is_forward ? gemm.taps - 1 - window : window) * gemm.phase_classes;
      const std::int64_t e =
          gemm.source_stride * (position + window * gemm.tap_step) + plane * gemm.source_plane_step + gemm.source_origin;
      if (k >= problem.K || e < 0 || e >= gemm.source_length) continue;
      const std::int64_t ci = g * in_per_group + (exact.is_forward ? 0 : column), co = exact.is_forward ? channel : 0;
      const float* from = exact.source + (n * gemm.G + g) * gemm.rows * gemm.source_length + e;
      const float* w = exact.w + (ci * out_per_group + co) * problem.K + k;
      const std::int64_t w_step = (exact.is_forward ? out_per_group : 1) * problem.K;
#pragma unroll 8
      for (std::int64_t row = 0; row < gemm.rows; ++row) sum = fmaf(from[row * gemm.source_length], w[row * w_step], sum);
    }
  }
  count_recomputed();
  return sum;
}

/// Computes again what may be wrong of a column's `count` outputs at `position` and behind: to[at_of(i)], where that is not
/// negative. By a whole warp, which can see what has been stored; it reads many outputs at a time, since each takes as long to
/// arrive as several sums. Few of them have their sums by all lanes.
template <class AtOf>
__device__ __forceinline__ void recompute_outputs(const TapGemm& gemm, const ExactSource& exact, std::int64_t n, std::int64_t g,
                                                  std::int64_t column, std::int64_t position, int count, float* to,
                                                  const AtOf& at_of, float offset, float least, bool everything) {
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
        const float sum =
            exact_sum(gemm, exact.problem, exact.is_forward, n, g, column, position + own + of, exact.source, exact.w);
        if (lane == of) to[at_of(own + lane)] = sum + offset;
      }
    }
  }
}

/// Computes again what may be wrong in one tile's columns [first, end), of `positions` positions, where `columns` has them
/// (SuspectTiles). `least`: of outputs less their bias.
__device__ __forceinline__ void recompute_columns(const TapGemm& gemm, const StoredTiling& tiling, const ExactSource& exact,
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
__device__ __noinline__ void recompute_tiles(const TapGemm& gemm, const StoredTiling& tiling, const ExactSource& exact,
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
