#pragma once
// How a launch of the tensor-core kernel cuts the reduction into steps and the output into tiles. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/tile.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

/// Facts of an operand kind and tile shape that the cutting needs.
struct TileShape {
  int columns, positions;    // of a block
  int parts, vector, depth;  // of the operand: copies, elements in 16 bytes, gemm_k of one wgmma
};

struct Tiling {
  int rows, planes, taps;  // of one step
  int row_steps, plane_steps, tap_steps, count;
  Tile tile;                       // of the source
  int source_bytes, weight_bytes;  // of one step
  int stages, weight_buffers;
  // Packed weights: the parts of a block of rows lie side by side, low halves first; else all blocks of a part do.
  bool has_parts_together;
  bool stationary;  // one buffer a step, filled once: a block keeps its columns
  int shared_bytes;
  std::int64_t weight_tiles, position_tiles, blocks;
  std::int64_t position_begin;  // of the first tile
  int position_step;            // from tile to tile
  unsigned grid;
  FastDivide by_weight_tiles, by_position_tiles, by_column_tiles, by_classes, by_gcd;
};

inline constexpr int kStagingPitch = 72;                          // words
inline constexpr int kStagingBytes = 8 * 16 * kStagingPitch * 4;  // eight warps
inline constexpr int kBarrierBytes = 512 + 1024;                  // barriers; what eight warps have to compute again

/// count == 0 where nothing fits.
[[nodiscard]] Tiling make_tiling(const TapGemm& gemm, const TileShape& tile, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
