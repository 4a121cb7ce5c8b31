#pragma once
// How the blocks of the by_tile kernel share its work. Each takes pieces and tickets in their order. A ticket waits only for
// tickets before it, and blocks that have those run, so there is no deadlock however few blocks run at a time.
//
// The preparation lists the units to compute and packs the weights. Then chunks of units are converted and multiplied:
//
//   convert chunks 0, 1, 2; multiply chunk 0, convert chunk 3; multiply chunk 1, convert chunk 4; ...
//
// There is memory for four converted chunks, so converting chunk c waits until chunk c - 4 is multiplied.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"
#include "cuda/conv/tensor_core/recompute/wide_blocks.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kByTileConsumers = 256;           // threads
inline constexpr int kChunkPlaces = kChunksAhead + 1;  // converted chunks that there is memory for
inline constexpr int kPackColumns = 8;                 // columns of a piece of the packing,
inline constexpr int kPackParts = 4;                   // which is so much of their rows

/// In global memory, zeros at first.
struct ByTileWords {
  std::uint32_t piece;       ///< pieces of the preparation that were taken,
  std::uint32_t prepared;    ///< and those that are done
  std::uint32_t ticket;      ///< tickets that were taken
  std::uint32_t units;       ///< in the list
  std::uint32_t needs_tf32;  ///< not 0 where weights of a column are too different for f16
};

#ifdef __CUDACC__

/// What a ticket is for.
struct ByTileTicket {
  bool converts;
  std::int64_t chunk;
  std::uint32_t unit;         // in the list
  std::uint32_t column_tile;  // of products
  __device__ ByTileTicket(const ByTileTiling& tiling, std::uint32_t ticket) {
    const auto chunk_units = static_cast<std::uint32_t>(tiling.chunk), first = chunk_units * kChunksAhead;
    std::uint32_t of_chunk = ticket, column = 0;
    converts = ticket < first;
    if (converts) {
      chunk = ticket / chunk_units;
      of_chunk -= static_cast<std::uint32_t>(chunk) * chunk_units;
    } else {
      chunk = tiling.by_chunk_tickets.divide(ticket - first);
      const std::uint32_t own = ticket - first - static_cast<std::uint32_t>(chunk) * tiling.by_chunk_tickets.divisor;
      const std::uint32_t tiles = tiling.by_chunk_tickets.divisor - chunk_units;
      converts = own >= tiles;
      of_chunk = converts ? own - tiles : tiling.steps.by_column_tiles.divide(own);
      if (converts) chunk += kChunksAhead;
      if (!converts) column = own - of_chunk * tiling.steps.by_column_tiles.divisor;
    }
    column_tile = column;
    unit = static_cast<std::uint32_t>(chunk) * chunk_units + of_chunk;
  }
};

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
