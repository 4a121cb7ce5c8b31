#pragma once
// The tiling of the source_bulk kernel: the tiles of the output and the rings in shared memory. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kBulkPositions = 128;  // per tile
inline constexpr int kBulkRows = 16;        // per chunk: a step of gemm_k
inline constexpr int kBulkDepthsMost = 20;
inline constexpr int kSpreadDepths = 6, kSpreadRows = 16;  // at most, where every second output is a bias; rows of a warp
inline constexpr int kBulkRingMost = 24;
inline constexpr int kBulkFixedBytes = 2048;  // except for the rings and the staging

/// One step is the whole reduction of a tile. `stages` are tiles, `raw_stages` chunks of kBulkRows unconverted rows.
struct BulkTiling : Tiling {
  bool is_stacked;   // 32 columns whose high and low halves are neighbours
  bool is_by_warps;  // no row of the output has sums of several warps
  bool is_spread;    // every second output is a bias, and rows are staged in vectors
  int depths;        // steps of gemm_k: products per part
  bool stores_bulk;  // whole rows by bulk copies, else by the consumers' threads
  bool is_dynamic;   // the tile scheduler is dynamic, not static
  int halo;          // positions of the source beyond those of the tile
  int raw_stages, raw_bytes, raw_pitch;
  int channels;       // per tile
  int out_pitch;      // elements per staged row
  int staging_bytes;  // per consumer
  Product products[kBulkDepthsMost];
};

/// What the tiling depends on: an operand and its arrays.
struct BulkShape {
  int parts, element_bytes;
  bool is_sector_aligned;  // the output begins at a multiple of 32 bytes
};

/// count == 0 if it does not fit.
[[nodiscard]] BulkTiling make_bulk_tiling(const TapGemm& gemm, const BulkShape& shape, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
