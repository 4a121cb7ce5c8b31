#pragma once
// The tiles of the warpgroups of kernel.cuh, and the layout of its shared memory.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// The tiles of a block; its two consumers take them in turn.
struct BlockWalk : Walk {
  bool is_second = false;
  __device__ explicit BlockWalk(const Tiling& tiling) : Walk(tiling, 0) {}
  __device__ __forceinline__ void advance() {
    above += is_second ? step - 1 : 1;
    is_second = !is_second;
  }
};

using BulkTiles = DynamicTiles<kBulkRingMost>;

/// Shared memory of a block: zeros, a ring of operand tiles, a ring of unconverted rows, each consumer's staging, barriers,
/// suspect counts, suspect tiles, tile numbers. The zeros come first: a product of zeros reads their 128 bytes again and again,
/// but compute-sanitizer assumes that it reads an operand's whole size from its address on.
struct BulkLayout {
  std::uint32_t base, zeros, sources, raw, staging, barriers;
  __device__ BulkLayout(std::uint32_t base, const BulkTiling& tiling) : base(base), zeros(base) {
    sources = zeros + 128;
    raw = sources + static_cast<std::uint32_t>(tiling.stages * tiling.source_bytes);
    staging = raw + static_cast<std::uint32_t>(tiling.raw_stages * tiling.raw_bytes);
    barriers = staging + static_cast<std::uint32_t>(kPairs * tiling.staging_bytes);
  }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ std::uint32_t raw_full(int stage) const { return full(stage + 8); }
  __device__ __forceinline__ std::uint32_t raw_empty(int stage) const { return full(stage + 8) + 8; }
  /// Four words: the suspect counts of the converting warps for the stage's tile.
  __device__ __forceinline__ std::uint32_t suspect_count(int stage) const { return full(stage + 8 + kBulkRingMost); }
  /// The suspect tiles of each of the consumers' warps.
  __device__ __forceinline__ std::uint32_t suspect_tiles(int warp) const {
    return full(2 * 8 + kBulkRingMost) + static_cast<std::uint32_t>(warp) * sizeof(SuspectTiles::Entry) * SuspectTiles::kMost;
  }
  /// The words of BulkTiles.
  __device__ __forceinline__ std::uint32_t tiles() const { return suspect_tiles(4 * kPairs); }
};
static_assert((2 * 8 + kBulkRingMost) * 16 + 4 * kPairs * sizeof(SuspectTiles::Entry) * SuspectTiles::kMost +
                      (8 + kBulkRingMost) * 4 + 128 <=
                  kBulkFixedBytes,
              "zeros to tiles");

}  // namespace polyphase::cuda::tensor_core
