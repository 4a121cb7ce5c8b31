#pragma once
// How a launch of the stationary kernel cuts the reduction into steps, the output into tiles and shared memory into rings. Host
// arithmetic only.

#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/streamed/tiling.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPairs = 2;               // of warpgroups, a block
inline constexpr int kStationaryColumns = 64;  // of a block
inline constexpr int kPairBarrierBytes = 256;  // barriers of operand stages, their faults, barriers of rows
inline constexpr int kStationaryStagesMost = 3;
inline constexpr int kPairSuspectBytes = 512;  // of f32: what a pair has to compute again (recompute/recompute.cuh)
inline constexpr int kProductsMost = 96;

/// One wgmma of a step: start addresses in its weights and its source, in 16 bytes.
struct Product {
  std::uint32_t weights, source;
};

/// Steps whose weights all stay in shared memory, and how their tiles are stored. `taps` are all taps; `stages` are those of a
/// pair or consumer.
struct StoredTiling : Tiling {
  int columns;    // of a tile
  int positions;  // of a tile; `position_step` of them are its own, so that
  int aligned;    // stored rows begin at a multiple of so many elements
  FastDivide by_stride;
  /// Whether all rows of the output and all tiles begin and end at a sector, or where a row does; then no tiles overlap.
  [[nodiscard]] constexpr bool has_whole_sectors() const { return aligned > 1 && position_step == positions; }
};

struct StationaryTiling : StoredTiling {
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

/// Tiles of `positions` positions, whose stored rows begin at a sector of 32 bytes where neighbouring phases are neighbours in
/// a row: as they are where all rows are whole sectors of an output that begins at one, else by overlapping.
void choose_tiles(const TapGemm& gemm, int positions, int element_bytes, bool is_sector_aligned, StoredTiling& tiling);

/// Whether more is written than read: then the tile scheduler is dynamic where a kernel has one.
[[nodiscard]] inline bool writes_more(const TapGemm& gemm) {
  return gemm.out_channels * gemm.out_length > gemm.rows * gemm.source_length;
}

/// Blocks, grid and divisors of chosen tiles. False where there are too many.
[[nodiscard]] bool count_tiles(const TapGemm& gemm, int sm_count, StoredTiling& tiling);

/// count == 0 where it does not fit.
[[nodiscard]] StationaryTiling make_stationary_tiling(const TapGemm& gemm, const StationaryShape& shape, int sm_count,
                                                      int shared_limit);

}  // namespace polyphase::cuda::tensor_core
