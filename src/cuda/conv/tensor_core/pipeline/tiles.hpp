#pragma once
// How the kernels whose weights stay in a block cut a problem: the reduction into steps, the output into tiles of columns and
// positions. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/tile.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPairs = 2;  // of warpgroups, or consumer warpgroups, a block: each has tiles of its own

/// Steps of gemm_k that one sum of two parts takes in a row. The tensor cores cut a sum off at each of them, always towards
/// zero: where few products make up the sum, 20 steps are past twice the error of plain f32 sums.
inline constexpr int kChainMost = 16;

/// One wgmma of a step: start addresses in its weights and its source, in 16 bytes.
struct Product {
  std::uint32_t weights, source;
};

/// Every step has all taps. A block loads the weights of all steps once and keeps its columns.
struct Tiling {
  int rows, planes, taps;  // of one step
  int row_steps, plane_steps, count;
  Tile tile;                       // of the source
  int source_bytes, weight_bytes;  // of one step
  int stages;                      // of a pair or consumer
  // Packed weights: the parts of a block of rows lie side by side, low halves first; else all blocks of a part do.
  bool has_parts_together;
  int shared_bytes;
  int columns;    // of a tile
  int positions;  // of a tile; it stores `position_step` of them, so that
  int aligned;    // stored rows begin at a multiple of so many elements
  std::int64_t weight_tiles, position_tiles, blocks;
  std::int64_t position_begin;  // of the first tile
  int position_step;            // from tile to tile
  unsigned grid;
  FastDivide by_weight_tiles, by_position_tiles, by_column_tiles, by_classes, by_gcd, by_stride;
  /// Whether all rows of the output and all tiles begin and end at a sector, or where a row does; then no tiles overlap.
  [[nodiscard]] constexpr bool has_whole_sectors() const { return aligned > 1 && position_step == positions; }
};

/// Sets the tiles of `positions` positions. Their stored rows begin at a sector of 32 bytes where neighbouring phases are
/// neighbours in a row: without overlap where all rows are whole sectors of an output that begins at one, else by overlapping.
void choose_tiles(const TapGemm& gemm, int positions, int element_bytes, bool is_sector_aligned, Tiling& tiling);

/// Whether more is written than read: then the tile scheduler is dynamic where a kernel has one.
[[nodiscard]] inline bool writes_more(const TapGemm& gemm) {
  return gemm.out_channels * gemm.out_length > gemm.rows * gemm.source_length;
}

/// Sets blocks, grid and divisors of chosen tiles. False where there are too many.
[[nodiscard]] bool count_tiles(const TapGemm& gemm, int sm_count, Tiling& tiling);

}  // namespace polyphase::cuda::tensor_core
