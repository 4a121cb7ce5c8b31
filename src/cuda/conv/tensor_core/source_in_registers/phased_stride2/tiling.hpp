#pragma once
// Tilings of the kernel in kernel.cuh. Host arithmetic only.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased2Groups = 2;      // consumer warpgroups per block
inline constexpr int kPhased2Positions = 64;  // per tile; a warpgroup computes a tile
inline constexpr int kPhased2Rows = 32;       // per step
inline constexpr int kPhased2Depths = 2;      // products of 16 rows per step
inline constexpr int kPhased2Classes = 2, kPhased2Taps = 2;
inline constexpr int kPhased2BarrierBytes = 384;
inline constexpr int kPhased2StagesMost = 10;

/// Vectors of 16 bytes of a row that a tile reads: its positions and their halo.
[[nodiscard]] constexpr int phased2_vectors(int element_bytes) { return kPhased2Positions * element_bytes / 16 + 2; }

struct Phased2Tiling {
  int channels;                    // per tile
  int parts;                       // of a number: 2 in fp32
  int count;                       // steps of the reduction
  int stages, stage_bytes;         // per consumer
  int weight_bytes, shared_bytes;  // weight_bytes: of a tile
  int first, lead;     // from a unit to the first vector of its row that is read; from there to the first element that it needs
  std::int64_t units;  // pairs of neighbouring outputs per row
  std::int64_t tiles, weight_tiles;  // of positions in all samples; of channels in all groups
  unsigned grid;
  FastDivide by_tiles_of_row, by_weight_tiles, by_channel_tiles;
  std::int64_t packed_bytes;  // of all weight tiles
};

/// The tiling with tiles of `channels` channels and numbers of `parts` parts. count == 0 if the problem is not of this kind
/// (forward, stride 2, four adjacent taps, odd padding, rows of whole vectors) or if its weights do not fit. Two parts have two
/// sets of sums, so they have tiles of at most 64 channels, and at most 128 rows, whose high parts are summed without a break.
[[nodiscard]] Phased2Tiling make_phased2_tiling(const ConvProblem& problem, int channels, int parts, int sm_count,
                                                int shared_limit);

/// Among tiles of 32, 64, 96 and 128 channels, those with the fewest blocks, and among these the least waste. count == 0 also
/// for fewer than 32 input channels or 256 units per row, where tiles would be mostly empty.
[[nodiscard]] Phased2Tiling best_phased2_tiling(const ConvProblem& problem, int parts, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
