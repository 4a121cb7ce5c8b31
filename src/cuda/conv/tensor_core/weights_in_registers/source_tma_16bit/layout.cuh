#pragma once
// The tiles of kernel.cuh, and the layout of its shared memory.

#include <cuda.h>

#include <cstdint>

#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// The tensors as boxes; a tensor's rows are counted over all samples.
struct Tma16Maps {
  CUtensorMap source;
  CUtensorMap out[kTma16MapsMost];
  CUtensorMap aux[kTma16MapsMost];  // boxes like the output's, if has_aux
  bool has_aux;
};

/// Shared memory of a block: zeros, a ring of operand tiles, a ring of unconverted rows, each consumer's staging, barriers.
struct Tma16Layout {
  std::uint32_t zeros, tiles, raw, staging, barriers;
  __device__ Tma16Layout(std::uint32_t base, const Tma16Tiling& tiling) {
    zeros = base;
    tiles = base + 128;
    raw = tiles + static_cast<std::uint32_t>(tiling.stages * tiling.tile_bytes);
    staging = raw + static_cast<std::uint32_t>(tiling.raw_stages * tiling.raw_bytes);
    barriers = staging + static_cast<std::uint32_t>(kTma16Consumers * tiling.staging_bytes);
  }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ std::uint32_t raw_full(int stage) const { return full(stage + 4); }
  __device__ __forceinline__ std::uint32_t raw_empty(int stage) const { return full(stage + 4) + 8; }
  __device__ __forceinline__ std::uint32_t aux_full(int consumer) const {
    return full(4 + kTma16RingMost) + static_cast<std::uint32_t>(consumer) * 8;
  }
};
static_assert((5 + kTma16RingMost) * 16 + 128 <= 512, "zeros and barriers");

/// A sample, and a tile of its rows.
struct Tma16Tile {
  std::uint32_t n, tile;
  __device__ __forceinline__ Tma16Tile(const Tma16Tiling& tiling, std::uint32_t index)
      : n(tiling.by_tiles.divide(index)), tile(index - n * tiling.by_tiles.divisor) {}
};

}  // namespace polyphase::cuda::tensor_core
