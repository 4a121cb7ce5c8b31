#pragma once
// Which tiles a pair of warpgroups of kernel.cuh works on, and where its shared memory lies.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// Where a tile begins.
struct TilePlace {
  std::int64_t n, g, column, position;
};

/// The tiles of a pair, one after another.
struct Walk {
  std::uint32_t above, count, step, tile;
  __device__ Walk(const StoredTiling& tiling, int pair) {
    const std::uint32_t copies = tiling.by_weight_tiles.divide(gridDim.x), copy = tiling.by_weight_tiles.divide(blockIdx.x);
    tile = blockIdx.x - copy * tiling.by_weight_tiles.divisor;
    above = copy * kPairs + static_cast<std::uint32_t>(pair);
    step = copies * kPairs;
    count = tiling.by_weight_tiles.divide(static_cast<std::uint32_t>(tiling.blocks));
  }
  __device__ __forceinline__ bool more() const { return above < count; }
  __device__ __forceinline__ void advance() { above += step; }
  __device__ __forceinline__ TilePlace place(const StoredTiling& tiling) const {
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

/// Shared memory of a block: weights, then of each pair its rings and its staging, then barriers and faults, then wrong tiles.
struct StationaryLayout {
  std::uint32_t weights, sources, raw, staging, weights_full, barriers, suspect_tiles;
  __device__ StationaryLayout(std::uint32_t base, const StationaryTiling& tiling, int staged_bytes, int pair) {
    const auto ring = static_cast<std::uint32_t>(tiling.stages * tiling.source_bytes);
    const auto rows = static_cast<std::uint32_t>(tiling.raw_stages * tiling.raw_bytes);
    const auto store = static_cast<std::uint32_t>(pair_staging_bytes(tiling.positions, staged_bytes));
    weights = base;
    const std::uint32_t pairs = weights + static_cast<std::uint32_t>(tiling.count * tiling.weight_bytes);
    sources = pairs + static_cast<std::uint32_t>(pair) * (ring + rows + store);
    raw = sources + ring;
    staging = raw + rows;
    weights_full = pairs + kPairs * (ring + rows + store);
    barriers = weights_full + 64 + static_cast<std::uint32_t>(pair) * kPairBarrierBytes;
    suspect_tiles = weights_full + 64 + kPairs * kPairBarrierBytes + static_cast<std::uint32_t>(pair) * kPairSuspectBytes;
  }
  /// A pair says here, once a tile, that the other may begin its next one.
  __device__ __forceinline__ std::uint32_t turn(int of_pair) const {
    return weights_full + 8 + static_cast<std::uint32_t>(of_pair) * 8;
  }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ std::uint32_t raw_full(int stage) const { return full(stage) + kPairBarrierBytes / 2; }
  __device__ __forceinline__ std::uint32_t raw_empty(int stage) const { return raw_full(stage) + 8; }
  /// Four words: the faults that each converting warp has found in the tile that ends in the stage.
  __device__ __forceinline__ std::uint32_t suspect_count(int stage) const { return full(stage) + kPairBarrierBytes / 4; }
};
static_assert(kStationaryStagesMost * 16 <= kPairBarrierBytes / 4, "barriers of stages, then their faults");

/// Bytes from the first of `kRows` rows that lie `raw_pitch` apart in shared memory to each row's first element: each was
/// copied from the 16 bytes before it on. `base` is that of the first in the tensor.
template <class T, class Tiling, int kRows>
__device__ __forceinline__ void find_raw_rows(const T* base, const Tiling& tiling, int (&offsets)[kRows]) {
  const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(base));
  const std::uint32_t pitch = static_cast<std::uint32_t>(tiling.tile.length) * static_cast<std::uint32_t>(sizeof(T));
#pragma unroll
  for (int c = 0; c < kRows; ++c)
    offsets[c] = c * tiling.raw_pitch + static_cast<int>((address + static_cast<std::uint32_t>(c) * pitch) & 15U);
}

}  // namespace polyphase::cuda::tensor_core
