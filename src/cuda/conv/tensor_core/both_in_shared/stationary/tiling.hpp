#pragma once
// How a launch of the stationary kernel cuts the reduction into steps, the output into tiles and shared memory into rings. Host
// arithmetic only.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kStationaryColumns = 64;  // of a block
inline constexpr int kPairBarrierBytes = 256;  // barriers of operand stages, their faults, barriers of rows
inline constexpr int kStationaryStagesMost = 3;
inline constexpr int kPairSuspectBytes = 512;  // of f32: what a pair has to compute again (recompute/recompute.cuh)
inline constexpr int kProductsMost = 96;

struct StationaryTiling : Tiling {
  bool is_paired;                        // converted two neighbours of 16 bits at a time
  int shift;                             // positions that a stage holds before the tile's first
  int raw_stages, raw_bytes, raw_pitch;  // a pair's ring of rows as they are in the tensor
  // From an item of a producer thread to its next one, 128 further: planes, positions (pairs of them where is_paired), bytes of
  // the rows, bytes of the operand; then where the planes begin again, and where the next eight rows begin.
  int next_plane, next_position, next_from, next_to;
  int wrap_from, wrap_to, block_from;
  int turn_step;  // of a tile, behind which the other pair may begin its next tile; -1: at any time
  int product_count;
  Product products[kProductsMost + 1];  // one is read ahead
};

/// A pair's staging of the store: four warps, eight rows of staged elements, and what unaligned reads may run over.
[[nodiscard]] constexpr int pair_staging_bytes(int positions, int element_bytes) {
  return 4 * 8 * (positions + 8) * element_bytes + 64;
}

/// What the cutting needs to know of an operand and its arrays.
struct StationaryShape {
  int positions, parts;
  int element_bytes;       // of the source and the output
  bool is_word_aligned;    // the source lies at a multiple of 4 bytes
  bool is_sector_aligned;  // the output lies at a multiple of 32 bytes
};

/// count == 0 where it does not fit.
[[nodiscard]] StationaryTiling make_stationary_tiling(const TapGemm& gemm, const StationaryShape& shape, int sm_count,
                                                      int shared_limit);

}  // namespace polyphase::cuda::tensor_core
