#pragma once
// Tilings of the kernels that keep their weights in a block: the steps of the reduction, the column and position tiles of the
// output. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/tile.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPairs = 2;  // pairs of warpgroups, or consumer warpgroups, per block: each has tiles of its own

/// The most steps of gemm_k in one running sum of two parts. The tensor cores truncate the sum at each step, always towards
/// zero: if few products make up the sum, 20 steps exceed twice the error of plain f32 sums.
inline constexpr int kChainMost = 16;

/// One wgmma of a step: start addresses in its weights and its source, in 16 bytes.
struct Product {
  std::uint32_t weights, source;
};

/// Every step has all taps. A block loads the weights of all steps once and keeps its columns.
struct Tiling {
  int rows, planes, taps;  // per step
  int row_steps, plane_steps, count;
  Tile tile;                       // of the source
  int source_bytes, weight_bytes;  // per step
  int stages;                      // per pair or consumer
  // Packed weights: the parts of a block of rows are neighbours, low halves first; else all blocks of a part are.
  bool has_parts_together;
  int shared_bytes;
  int columns;    // per tile
  int positions;  // per tile; it stores `position_step` of them, so that
  int aligned;    // stored rows begin at a multiple of so many elements
  std::int64_t weight_tiles, position_tiles, blocks;
  std::int64_t position_begin;  // of the first tile
  int position_step;            // from tile to tile
  unsigned grid;
  FastDivide by_weight_tiles, by_position_tiles, by_column_tiles, by_classes, by_gcd, by_stride;
  /// Whether all rows of the output and all tiles begin and end at a sector or at the end of a row; then no tiles overlap.
  [[nodiscard]] constexpr bool has_whole_sectors() const { return aligned > 1 && position_step == positions; }
};

/// Sets the tiles of `positions` positions. If neighbouring phases are neighbours in a row, stored rows begin at a sector of 32
/// bytes: without overlap if all rows are whole sectors of an output that begins at one, else by overlapping tiles.
void choose_tiles(const TapGemm& gemm, int positions, int element_bytes, bool is_sector_aligned, Tiling& tiling);

/// Whether more is written than read: kernels with a dynamic tile scheduler then use it.
[[nodiscard]] inline bool writes_more(const TapGemm& gemm) {
  return gemm.out_channels * gemm.out_length > gemm.rows * gemm.source_length;
}

/// Computes blocks, grid and divisors of the chosen tiles. False if there are too many.
[[nodiscard]] bool count_tiles(const TapGemm& gemm, int sm_count, Tiling& tiling);

}  // namespace polyphase::cuda::tensor_core
