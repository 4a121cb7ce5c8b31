#pragma once
// The producer of kernel.cuh: boxes of unconverted rows, transposed into operand tiles by matrices of 8 x 8 numbers: [block of
// 8 rows][slot][8 rows]. A tap is a start address in such a tile.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/layout.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// Copies the box of a tile.
__device__ __forceinline__ void copy_tma16(const Tma16Tiling& tiling, const Tma16Layout& layout, const Tma16Maps& maps,
                                           std::uint32_t index, int stage, int unit_place) {
  const Tma16Tile at(tiling, index);
  const int first = static_cast<int>(tiling.source_first) + static_cast<int>(at.tile) * (tiling.window / tiling.stride);
  const auto bytes = static_cast<std::uint32_t>(2 * tiling.rows * tiling.pitch);
  ptx::mbarrier_arrive_expect(layout.raw_full(stage), bytes);
  ptx::tensor_copy(layout.raw + static_cast<std::uint32_t>(stage * tiling.raw_bytes), &maps.source, first >> unit_place, 0,
                   static_cast<int>(at.n) * (tiling.rows / tiling.source.classes), layout.raw_full(stage));
}

/// Transposes rows: a warp handles two blocks of eight rows and two vectors of each row at a time.
struct Turner {
  static constexpr int kPairsMost = 4;  // pairs of blocks
  const Tma16Tiling& tiling;
  int from[kPairsMost], to[kPairsMost];  // bytes from a box and an operand tile, at vector 0
  int slot[kPairsMost];  // of this lane's registers, at vector 0, blocks 2*pair and the next: low and high halves
  int lane;

  __device__ __forceinline__ Turner(const Tma16Tiling& cut, int own) : tiling(cut), lane(own) {
    const int matrix = own / 8, r = own % 8, classes = tiling.source.classes;
#pragma unroll
    for (int pair = 0; pair < kPairsMost; ++pair) {
      const int block = 2 * pair + matrix % 2, i = block % classes, late = (classes - 1 - i) * tiling.source.skew;
      const int row = (block / classes * 8 + r) * classes + i;
      from[pair] = row * tiling.pitch * 2;
      to[pair] = (block * tiling.slots + late + r) * 16;
      const int other = (2 * pair + 1) % classes, first = 2 * pair % classes;
      slot[pair] = own / 4 + (((classes - 1 - other) * tiling.source.skew) << 16) + (classes - 1 - first) * tiling.source.skew;
    }
  }

  /// kInside: all slots are inside the rows; else those in [begin, end).
  template <bool kInside>
  __device__ __forceinline__ void run(std::uint32_t raw, std::uint32_t tile, int warp, int begin, int end) const {
    const int vectors = tiling.pitch / 8, pairs = tiling.rows / 16;
    for (int two = warp; 2 * two < vectors; two += 4) {
      const int vector = min(2 * two + lane / 16, vectors - 1);
#pragma unroll
      for (int pair = 0; pair < kPairsMost; ++pair) {
        if (pair >= pairs) break;
        std::uint32_t numbers[4];
        ptx::load_matrices_transposed(numbers, raw + static_cast<std::uint32_t>(from[pair] + vector * 16));
        if constexpr (!kInside) {
#pragma unroll
          for (int m = 0; m < 4; ++m) {
            const int own = min(2 * two + m / 2, vectors - 1) * 8 + lane / 4;
            const int late = (slot[pair] - lane / 4) >> (m % 2 * 16) & 0xffff;
            if (own + late < begin || own + late >= end) numbers[m] = 0;
          }
        }
        ptx::store_matrices(tile + static_cast<std::uint32_t>(to[pair] + vector * 128), numbers);
      }
    }
  }
};

__device__ __forceinline__ void turn_tiles(const Tma16Tiling& tiling, const Tma16Layout& layout, const Tma16Maps& maps,
                                           std::int64_t source_length, int unit_place, int warp, int lane) {
  const bool issues = warp == 0 && lane == 0;
  if (issues) {
    std::uint32_t index = blockIdx.x;
    for (int stage = 0; stage < tiling.raw_stages && index < tiling.tiles; ++stage, index += gridDim.x)
      copy_tma16(tiling, layout, maps, index, stage, unit_place);
  }
  const Turner turner(tiling, lane);
  const auto later = static_cast<std::uint32_t>(tiling.raw_stages) * gridDim.x;
  Ring raw_ring, ring;
  for (std::uint32_t index = blockIdx.x; index < tiling.tiles; index += gridDim.x) {
    const Tma16Tile at(tiling, index);
    // Slot 0 is this element of the rows.
    const int first = static_cast<int>(tiling.source_first) + static_cast<int>(at.tile) * (tiling.window / tiling.stride) -
                      tiling.source_offset - (tiling.source.group - 1) * tiling.source.skew;
    const std::uint32_t raw = layout.raw + static_cast<std::uint32_t>(raw_ring.stage * tiling.raw_bytes);
    const std::uint32_t tile = layout.tiles + static_cast<std::uint32_t>(ring.stage * tiling.tile_bytes);
    ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
    ptx::mbarrier_wait(layout.raw_full(raw_ring.stage), raw_ring.parity);
    if (first >= 0 && first + tiling.slots <= source_length)
      turner.run<true>(raw, tile, warp, 0, 0);
    else
      turner.run<false>(raw, tile, warp, -first, static_cast<int>(source_length) - first);
    ptx::fence_async_shared();
    __syncwarp();
    if (lane == 0) {
      ptx::mbarrier_arrive(layout.full(ring.stage));
      ptx::mbarrier_arrive(layout.raw_empty(raw_ring.stage));
    }
    if (issues && index + later < tiling.tiles) {
      ptx::mbarrier_wait(layout.raw_empty(raw_ring.stage), raw_ring.parity);
      copy_tma16(tiling, layout, maps, index + later, raw_ring.stage, unit_place);
    }
    raw_ring.advance(tiling.raw_stages);
    ring.advance(tiling.stages);
  }
}

}  // namespace polyphase::cuda::tensor_core
