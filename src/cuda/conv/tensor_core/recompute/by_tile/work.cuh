#pragma once
// How the blocks of the by_tile kernel share its work. First they prepare: they list the units to compute, pack the weights,
// and look at the magnitudes of every unit. Then each block has warps that convert parts of units and warps that multiply
// tiles. Parts are taken from one counter, in the order of the list, and tiles from another, in the order of their units:
//
//   warps 0 to 7    prepare, then multiply
//   warp 8          takes tiles and copies their operands
//   warps 9 to 11   convert
//
// There is memory for some converted units, so converting unit u waits until unit u - places is multiplied. The first part that
// is not converted and the first tile that is not multiplied wait only for parts and tiles before them, which running blocks
// have. So there is no deadlock however few blocks run at a time.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"
#include "cuda/conv/tensor_core/recompute/wide_blocks.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kByTileConsumers = 256;  // threads that multiply,
inline constexpr int kByTileConverters = 96;  // and that convert
inline constexpr int kPackColumns = 8;        // columns of a piece of the packing,
inline constexpr int kPackParts = 4;          // which is so much of their rows

/// In global memory, zeros at first.
struct ByTileWords {
  std::uint32_t piece;       ///< pieces of the list and of the weights that were taken,
  std::uint32_t look;        ///< parts of units that were taken to look at,
  std::uint32_t prepared;    ///< and those of both that are done
  std::uint32_t part;        ///< parts of units that were taken for conversion
  std::uint32_t tile;        ///< tiles that were taken
  std::uint32_t units;       ///< in the list
  std::uint32_t needs_tf32;  ///< not 0 where weights of a column are too different for f16
};

/// The magnitudes of a unit, as float bits, zeros at first.
struct UnitExtent {
  std::uint32_t most, not_least;  ///< of the finite numbers that are not zero; the complement of the least one
  std::uint32_t unusual;          ///< not 0: there is an Inf or NaN
};

#ifdef __CUDACC__

/// Where a unit is.
struct ByTileUnit {
  std::int64_t n, g, in_sample;  // in_sample: the unit of its sample and group
  __device__ ByTileUnit(const ByTileTiling& tiling, const TapGemm& gemm, std::uint32_t index) {
    const std::uint32_t above = tiling.by_units_of_sample.divide(index);
    in_sample = index - above * tiling.by_units_of_sample.divisor;
    n = above / static_cast<std::uint32_t>(gemm.G);
    g = above - n * gemm.G;
  }
  /// The position of a warpgroup's first sum among all samples (PreconvertedPlace).
  [[nodiscard]] __device__ std::int64_t position(const ByTileTiling& tiling, int group) const {
    return n * tiling.steps.source.sample_pitch + in_sample * tiling.unit_positions +
           (tiling.along_positions ? group * kWidePositions : 0);
  }
};

/// Whether sums of a subtile of 64 columns and 128 positions are left to this kernel; `block` is the block of positions.
__device__ __forceinline__ bool is_marked(const TapGemm& gemm, const WideBlocks& wide, int usable, std::int64_t n,
                                          std::int64_t g, std::int64_t subtile, std::int64_t block) {
  const std::int64_t first = subtile * usable, last = min(first + usable, gemm.columns) - 1;
  if (first > last || block >= wide.position_blocks) return false;
  for (std::int64_t column = first / kWideColumns; column <= last / kWideColumns; ++column)
    if (wide.marks[((n * gemm.G + g) * wide.column_blocks + column) * wide.position_blocks + block] != 0) return true;
  return false;
}

#endif

}  // namespace polyphase::cuda::tensor_core
