#pragma once
// How a launch of the kernel with weights in registers cuts its output into tiles and shared memory into rings. Host arithmetic
// only.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kBulkPositions = 128;  // of a tile
inline constexpr int kBulkRows = 16;        // of a chunk: a step of gemm_k
inline constexpr int kBulkDepthsMost = 20;
inline constexpr int kSpreadDepths = 6, kSpreadRows = 16;  // at most, where every second output is a bias; rows of a warp
inline constexpr int kBulkRingMost = 24;
inline constexpr int kBulkFixedBytes = 2048;  // apart from the rings and the staging

/// One step: the whole reduction of a tile. `stages` are tiles, `raw_stages` chunks of kBulkRows rows as they are in the
/// tensor.
struct BulkTiling : Tiling {
  bool is_stacked;   // 32 columns whose high and low halves are neighbours
  bool is_by_warps;  // no row of the output has sums of several warps
  bool is_spread;    // every second output is a bias, and rows are staged by vectors
  int depths;        // steps of gemm_k: products of one part
  bool stores_bulk;  // whole rows by bulk copies, else by the consumers' threads
  bool is_dynamic;   // the tile scheduler is dynamic, not static
  int halo;          // positions of the source beyond those of the tile
  int raw_stages, raw_bytes, raw_pitch;
  int channels;       // of a tile
  int out_pitch;      // elements of a staged row
  int staging_bytes;  // of a consumer
  Product products[kBulkDepthsMost];
};

/// What the cutting needs to know of an operand and its arrays.
struct BulkShape {
  int parts, element_bytes;
  bool is_sector_aligned;  // the output lies at a multiple of 32 bytes
};

/// count == 0 where it does not fit.
[[nodiscard]] BulkTiling make_bulk_tiling(const TapGemm& gemm, const BulkShape& shape, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
