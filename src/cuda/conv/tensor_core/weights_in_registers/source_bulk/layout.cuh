#pragma once
// Which tiles the warpgroups of kernel.cuh work on, and where its shared memory lies.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// The tiles of a block, those of its two consumers in turn.
struct BlockWalk : Walk {
  bool is_second = false;
  __device__ explicit BlockWalk(const Tiling& tiling) : Walk(tiling, 0) {}
  __device__ __forceinline__ void advance() {
    above += is_second ? step - 1 : 1;
    is_second = !is_second;
  }
};

using BulkTiles = DynamicTiles<kBulkRingMost>;

/// Shared memory of a block: zeros, a ring of operand tiles, a ring of rows as they are, each consumer's staging, barriers,
/// faults, wrong tiles, which tiles. The zeros come first: a product of nothing reads their 128 bytes again and again, where
/// compute-sanitizer takes an operand's whole size from its address on to be read.
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
  /// Four words: the faults that each converting warp has found in the stage's tile.
  __device__ __forceinline__ std::uint32_t suspect_count(int stage) const { return full(stage + 8 + kBulkRingMost); }
  /// What each of the consumers' warps has to compute again.
  __device__ __forceinline__ std::uint32_t suspect_tiles(int warp) const {
    return full(2 * 8 + kBulkRingMost) + static_cast<std::uint32_t>(warp) * sizeof(SuspectTiles::Entry) * SuspectTiles::kMost;
  }
  /// BulkTiles' words.
  __device__ __forceinline__ std::uint32_t tiles() const { return suspect_tiles(4 * kPairs); }
};
static_assert((2 * 8 + kBulkRingMost) * 16 + 4 * kPairs * sizeof(SuspectTiles::Entry) * SuspectTiles::kMost +
                      (8 + kBulkRingMost) * 4 + 128 <=
                  kBulkFixedBytes,
              "zeros to tiles");

}  // namespace polyphase::cuda::tensor_core
