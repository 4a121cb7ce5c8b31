#pragma once
// The part of the output that a block or a warpgroup computes.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/preconverted/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// The tile of a block.
struct PreconvertedTile {
  std::int64_t g, column_tile, position;  // position: the tile of positions
  int first_row_step, count;              // of its slice
};

__device__ __forceinline__ PreconvertedTile preconverted_tile(std::int64_t block, const PreconvertedTiling& tiling) {
  const std::uint32_t slice = tiling.slices == 1 ? 0 : tiling.by_tiles.divide(static_cast<std::uint32_t>(block));
  const std::uint32_t index = static_cast<std::uint32_t>(block) - slice * static_cast<std::uint32_t>(tiling.tiles);
  std::uint32_t column, position, g;
  if (tiling.positions_first) {
    const std::uint32_t above = tiling.by_position_tiles.divide(index);
    position = index - above * tiling.by_position_tiles.divisor;
    g = tiling.by_column_tiles.divide(above);
    column = above - g * tiling.by_column_tiles.divisor;
  } else {
    const std::uint32_t above = tiling.by_column_tiles.divide(index);
    column = index - above * tiling.by_column_tiles.divisor;
    g = tiling.by_position_tiles.divide(above);
    position = above - g * tiling.by_position_tiles.divisor;
  }
  const int first = static_cast<int>(slice) * tiling.row_steps_of_slice;
  const int row_steps = min(tiling.row_steps_of_slice, tiling.row_steps - first);
  return {g, column, position, first, row_steps * tiling.plane_steps * tiling.tap_steps};
}

/// The part of a warpgroup: 64 columns of group g from `column`, positions from `position` of all samples.
struct PreconvertedPlace {
  std::int64_t g, column, position;
};

}  // namespace polyphase::cuda::tensor_core
