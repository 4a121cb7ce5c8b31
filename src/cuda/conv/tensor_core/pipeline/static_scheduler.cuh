#pragma once
// The static tile scheduler: the tiles of a pair follow from its place in the grid.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

/// Where a tile begins.
struct TilePlace {
  std::int64_t n, g, column, position;
};

/// The tiles of a pair, one after another.
struct Walk {
  std::uint32_t above, count, step, tile;
  __device__ Walk(const Tiling& tiling, int pair) {
    const std::uint32_t copies = tiling.by_weight_tiles.divide(gridDim.x), copy = tiling.by_weight_tiles.divide(blockIdx.x);
    tile = blockIdx.x - copy * tiling.by_weight_tiles.divisor;
    above = copy * kPairs + static_cast<std::uint32_t>(pair);
    step = copies * kPairs;
    count = tiling.by_weight_tiles.divide(static_cast<std::uint32_t>(tiling.blocks));
  }
  __device__ __forceinline__ bool more() const { return above < count; }
  __device__ __forceinline__ void advance() { above += step; }
  __device__ __forceinline__ TilePlace place(const Tiling& tiling) const {
    TilePlace place;
    const std::uint32_t n = tiling.by_position_tiles.divide(above), g = tiling.by_column_tiles.divide(tile);
    place.n = n;
    place.g = g;
    place.position =
        tiling.position_begin + static_cast<std::int64_t>(above - n * tiling.by_position_tiles.divisor) * tiling.position_step;
    place.column = static_cast<std::int64_t>(tile - g * tiling.by_column_tiles.divisor) * tiling.columns;
    return place;
  }
};

}  // namespace polyphase::cuda::tensor_core
