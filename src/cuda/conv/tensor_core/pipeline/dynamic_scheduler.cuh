#pragma once
// The dynamic tile scheduler: a block takes its next tile when it is free. Suspect sums are recorded per tile in global memory,
// because results must not depend on which block took which tile.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/suspect_tiles.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr std::uint32_t kNoTile = 0xffffffffU;

/// The tiles of a block, broadcast in shared memory by the producer to the warps that wait for a stage or one of up to kRawMost
/// raw stages.
template <int kRawMost>
struct DynamicTiles {
  volatile std::uint32_t* words;
  __device__ __forceinline__ volatile std::uint32_t& of_raw(int stage) const { return words[stage]; }
  __device__ __forceinline__ volatile std::uint32_t& of_stage(int stage) const { return words[kRawMost + stage]; }
  /// Called by a whole warp; the lane that releases the stage reads. Through a shuffle the compiler knows that it is uniform in
  /// a warp.
  __device__ static __forceinline__ std::uint32_t read(volatile std::uint32_t& word, int lane) {
    return __shfl_sync(0xffffffffU, lane == 0 ? word : 0, 0);
  }
};

/// Layout: one counter per weight tile; then per (tile, warp) {suspect count, previous suspect tile or kNoTile}: a linked list.
struct DynamicOrder {
  std::uint32_t* memory;
  static constexpr int kWarps = 4;
  /// Takes a tile. Called by one thread, which waits where the result is used. The compiler would aggregate an atomicAdd() over
  /// the warp and wait together.
  __device__ __forceinline__ std::uint32_t draw(const Walk& walk) const { return atomicInc(memory + walk.tile, kNoTile - 1); }
  __device__ __forceinline__ std::uint32_t* suspect_entry(const Tiling& tiling, const Walk& walk, int warp) const {
    const auto tiles = static_cast<std::uint32_t>(tiling.weight_tiles);
    return memory + tiles + (static_cast<std::int64_t>(walk.above) * tiles + walk.tile) * (2 * kWarps) + 2 * warp;
  }
  /// Called by a whole warp. Records what SuspectTiles::add() records, but `suspect_tiles` keeps only the last tile.
  __device__ __forceinline__ void add(const Tiling& tiling, const Walk& walk, int warp, SuspectCount suspect_count,
                                      std::uint32_t columns, SuspectTiles& suspect_tiles) const {
    if (threadIdx.x % 32 == 0) {
      std::uint32_t* const entry = suspect_entry(tiling, walk, warp);
      entry[0] = min(suspect_count, kNeverSplit) | columns << 24;
      entry[1] = suspect_tiles.count != 0 ? suspect_tiles.of[0].above : kNoTile;
      suspect_tiles.of[0].above = walk.above;
    }
    suspect_tiles.count = 1;
  }
  /// Called by a whole warp that sees what add() wrote. Sets `suspect_tiles` to tile `walk.above` alone and returns the suspect
  /// tile before it.
  __device__ __forceinline__ std::uint32_t recall(const Tiling& tiling, const Walk& walk, int warp,
                                                  const SuspectTiles& suspect_tiles) const {
    const std::uint32_t* const entry = suspect_entry(tiling, walk, warp);
    const std::uint32_t found = entry[0], before = entry[1];
    __syncwarp();
    if (threadIdx.x % 32 == 0) suspect_tiles.of[0] = {walk.above, found & 0xffffffU, found >> 24};
    return before;
  }
  /// Words of `memory`.
  [[nodiscard]] static std::int64_t words(const Tiling& tiling) { return tiling.weight_tiles + tiling.blocks * 2 * kWarps; }
};

}  // namespace polyphase::cuda::tensor_core
