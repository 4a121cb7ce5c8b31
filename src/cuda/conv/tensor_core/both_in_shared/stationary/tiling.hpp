#pragma once
// The tiling of the stationary kernel: the steps of the reduction, the tiles of the output, the rings in shared memory. Host
// arithmetic only.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kStationaryColumns = 64;  // per block
inline constexpr int kPairBarrierBytes = 256;  // barriers of operand stages, their suspect counts, barriers of raw stages
inline constexpr int kStationaryStagesMost = 3;
inline constexpr int kPairSuspectBytes = 512;  // for f32: the list of a pair's suspect tiles (recompute/recompute.cuh)
inline constexpr int kProductsMost = 96;

struct StationaryTiling : Tiling {
  bool is_paired;                        // two neighbouring 16-bit elements are converted at a time
  int shift;                             // positions that a stage holds before the tile's first
  int raw_stages, raw_bytes, raw_pitch;  // a pair's ring of rows in the tensor's format
  // Increments from an item of a producer thread to its next one, 128 further on: planes, positions (pairs if is_paired), bytes
  // of the rows, bytes of the operand; then the increments at the end of the planes and of eight rows.
  int next_plane, next_position, next_from, next_to;
  int wrap_from, wrap_to, block_from;
  int turn_step;  // step of a tile after which the other pair may begin its next tile; -1: at any time
  int product_count;
  Product products[kProductsMost + 1];  // one is read ahead
};

/// A pair's staging for the store: four warps, eight rows of staged elements, and padding for unaligned reads.
[[nodiscard]] constexpr int pair_staging_bytes(int positions, int element_bytes) {
  return 4 * 8 * (positions + 8) * element_bytes + 64;
}

/// What the tiling depends on: an operand and its arrays.
struct StationaryShape {
  int positions, parts;
  int element_bytes;       // of the source and the output
  bool is_word_aligned;    // the source begins at a multiple of 4 bytes
  bool is_sector_aligned;  // the output begins at a multiple of 32 bytes
};

/// count == 0 if it does not fit.
[[nodiscard]] StationaryTiling make_stationary_tiling(const TapGemm& gemm, const StationaryShape& shape, int sm_count,
                                                      int shared_limit);

}  // namespace polyphase::cuda::tensor_core
