#pragma once
// The dynamic tile scheduler: a block takes its next tile when it gets free. Suspect sums are remembered by tile, in
// global memory: nothing that is stored may depend on which block took which tile.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/suspect_tiles.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr std::uint32_t kNoTile = 0xffffffffU;

/// Which tiles a block has, told in shared memory by whoever copies to whoever waits for a stage, of up to kRawMost raw ones.
template <int kRawMost>
struct DynamicTiles {
  volatile std::uint32_t* words;
  __device__ __forceinline__ volatile std::uint32_t& of_raw(int stage) const { return words[stage]; }
  __device__ __forceinline__ volatile std::uint32_t& of_stage(int stage) const { return words[kRawMost + stage]; }
  /// For a whole warp, by the lane that gives the stage back; through a shuffle the compiler knows it to be the same in a warp.
  __device__ static __forceinline__ std::uint32_t read(volatile std::uint32_t& word, int lane) {
    return __shfl_sync(0xffffffffU, lane == 0 ? word : 0, 0);
  }
};

/// A counter of each tile of weights, then of each tile and warp the faults of its sums and the warp's tile before it that has
/// any, or kNoTile.
struct DynamicOrder {
  std::uint32_t* memory;
  static constexpr int kWarps = 4;
  /// By one thread, which waits for it where it is used. An atomicAdd() would be one of the whole warp, and waited for at once.
  __device__ __forceinline__ std::uint32_t draw(const Walk& walk) const { return atomicInc(memory + walk.tile, kNoTile - 1); }
  __device__ __forceinline__ std::uint32_t* suspect_entry(const Tiling& tiling, const Walk& walk, int warp) const {
    const auto tiles = static_cast<std::uint32_t>(tiling.weight_tiles);
    return memory + tiles + (static_cast<std::int64_t>(walk.above) * tiles + walk.tile) * (2 * kWarps) + 2 * warp;
  }
  /// By a whole warp: what SuspectTiles::add() remembers, but `suspect_tiles` has only the tile that was the last.
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
  /// By a whole warp that sees what add() wrote: `suspect_tiles` is tile `walk.above` alone; the one that was the last before
  /// it.
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
