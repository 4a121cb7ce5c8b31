#pragma once
// How the kernel of kernel.cuh cuts a problem. Host arithmetic only.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased2Groups = 2;      // consumer warpgroups of a block
inline constexpr int kPhased2Positions = 64;  // of a tile, which is a warpgroup's
inline constexpr int kPhased2Rows = 32;       // of a step
inline constexpr int kPhased2Depths = 2;      // products of 16 rows in a step
inline constexpr int kPhased2Classes = 2, kPhased2Taps = 2;
inline constexpr int kPhased2BarrierBytes = 384;
inline constexpr int kPhased2StagesMost = 10;

/// Vectors of 16 bytes of a row that a tile reads: its positions, and what lies around them.
[[nodiscard]] constexpr int phased2_vectors(int element_bytes) { return kPhased2Positions * element_bytes / 16 + 2; }

struct Phased2Tiling {
  int channels;                    // of a tile
  int count;                       // steps of the reduction
  int stages, stage_bytes;         // of a consumer
  int weight_bytes, shared_bytes;  // weights: of a tile
  int first, lead;                 // from a unit to the first vector of its row that is read; from there to what it needs first
  std::int64_t units;              // pairs of neighbouring outputs of a row
  std::int64_t tiles, weight_tiles;  // of positions, all samples; of channels, all groups
  unsigned grid;
  FastDivide by_tiles_of_row, by_weight_tiles, by_channel_tiles;
  std::int64_t packed_bytes;  // of all weight tiles
};

/// With tiles of `channels` channels. count == 0 where the problem is not one of this kind: forward, stride 2, four taps side
/// by side, odd padding, rows of whole vectors; or where its weights do not fit.
[[nodiscard]] Phased2Tiling make_phased2_tiling(const ConvProblem& problem, int channels, int sm_count, int shared_limit);

/// Of tiles of 32, 64, 96 and 128 channels those that make the fewest blocks, and of them the least waste. count == 0 also for
/// fewer than 32 channels in or 256 units a row, where too much of the tiles lies behind their ends.
[[nodiscard]] Phased2Tiling best_phased2_tiling(const ConvProblem& problem, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
