#pragma once
// Tilings of the preconverted kernel (kernel.cuh). Host arithmetic only.

#include <cstdint>
#include <span>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/source_layout.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPreconvertedDepths = kPreconvertedBlocks / 2;  // products of 16 rows that are issued together
inline constexpr int kPreconvertedSubtile = 64;                      // columns per warpgroup
inline constexpr int kPreconvertedGroups = 2;                        // consumer warpgroups per block
inline constexpr int kPreconvertedBarrierBytes = 256;
inline constexpr int kPreconvertedStagesMost = 12;

/// Staging: a warp's sums in output order, so many bytes of each of its 16 columns at a time, plus padding that spreads the
/// runs over the banks.
inline constexpr int kPreconvertedStagedBytes = 512;
constexpr int preconverted_staging_of_warp(int staged_bytes) { return 16 * staged_bytes + 512; }
/// Shared memory used by other things than stages.
inline constexpr int kPreconvertedFixedBytes =
    128 + kPreconvertedBarrierBytes + 4 * kPreconvertedGroups * preconverted_staging_of_warp(kPreconvertedStagedBytes);

/// The tiles of one kernel instance.
struct PreconvertedShape {
  int positions;         // per warpgroup
  bool along_positions;  // the warpgroups of a block share columns, else positions
  int parts;             // 16-bit numbers per source number
  int blocks_per_sm;
};

struct PreconvertedTiling {
  int planes, taps;  // per step, which has 32 rows; planes in the numbering of the source
  int row_steps, plane_steps, tap_steps, count;
  int source_bytes;  // of a full step
  int weight_bytes;
  int stages, shared_bytes;
  int usable;                     // of the columns of a subtile: whole channels if that wastes little
  int tile_columns;               // per block, as packed
  int tile_positions;             // per block
  bool by_warps;                  // channels end at every eighth column
  bool interleaved;               // a channel's classes are neighbours and fill its row
  bool whole_vectors;             // 8 positions from a multiple of 8 are neighbours in a row, or none is in a sample
  bool positions_first;           // neighbouring blocks have other positions, else other columns
  std::int64_t sample_positions;  // written positions per sample
  std::int64_t column_tiles, position_tiles, tiles;
  int slices, row_steps_of_slice;  // of the reduction; partial sums are added afterwards, in order
  std::int64_t blocks;             // tiles * slices
  std::int64_t partial_bytes;      // 0 for one slice
  std::int64_t packed_bytes;
  unsigned grid;
  SourceLayout source;
  FastDivide by_tiles, by_column_tiles, by_position_tiles, by_classes, by_usable;
};

/// A tiling with at most `slices` slices and at least `stages` stages, or two if nothing else fits. count == 0 if nothing fits.
[[nodiscard]] PreconvertedTiling make_preconverted_tiling(const TapGemm& gemm, const PreconvertedShape& shape, int slices,
                                                          int sm_count, int shared_limit, int stages = 3);

/// The kernel instances for operands of `parts` parts.
[[nodiscard]] std::span<const PreconvertedShape> preconverted_shapes(int parts);

/// The estimated seconds of all launches with packed weights, for elements of `element_bytes` bytes.
[[nodiscard]] double preconverted_cost(const TapGemm& gemm, const PreconvertedTiling& tiling, const PreconvertedShape& shape,
                                       int element_bytes, int sm_count);

}  // namespace polyphase::cuda::tensor_core
