#pragma once
// The layout of shared memory in kernel.cuh.

#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// Shared memory of a block: weights; per pair its rings and its staging; barriers and suspect counts; suspect tiles.
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
  /// A pair signals here, once per tile, that the other may begin its next one.
  __device__ __forceinline__ std::uint32_t turn(int of_pair) const {
    return weights_full + 8 + static_cast<std::uint32_t>(of_pair) * 8;
  }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ std::uint32_t raw_full(int stage) const { return full(stage) + kPairBarrierBytes / 2; }
  __device__ __forceinline__ std::uint32_t raw_empty(int stage) const { return raw_full(stage) + 8; }
  /// Four words: the suspect counts of the converting warps for the tile that ends in this stage.
  __device__ __forceinline__ std::uint32_t suspect_count(int stage) const { return full(stage) + kPairBarrierBytes / 4; }
};
static_assert(kStationaryStagesMost * 16 <= kPairBarrierBytes / 4, "barriers of stages, then their faults");

}  // namespace polyphase::cuda::tensor_core
