#pragma once
// How the preconverted kernel (kernel.cuh) cuts a problem. Host arithmetic only.

#include <cstdint>
#include <span>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/source_layout.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPreconvertedDepths = kPreconvertedBlocks / 2;  // products of 16 rows that are issued together
inline constexpr int kPreconvertedSubtile = 64;                      // columns of a warpgroup
inline constexpr int kPreconvertedGroups = 2;                        // consumer warpgroups of a block
inline constexpr int kPreconvertedBarrierBytes = 256;
inline constexpr int kPreconvertedStagesMost = 12;

/// Shared memory in which a warp's sums lie as they will be written: so many bytes of each of its 16 columns at a time, and
/// what spreads the runs over the banks.
inline constexpr int kPreconvertedStagedBytes = 512;
constexpr int preconverted_staging_of_warp(int staged_bytes) { return 16 * staged_bytes + 512; }
/// Shared memory for other things than stages.
inline constexpr int kPreconvertedFixedBytes =
    128 + kPreconvertedBarrierBytes + 4 * kPreconvertedGroups * preconverted_staging_of_warp(kPreconvertedStagedBytes);

/// The tiles of one kernel instance.
struct PreconvertedShape {
  int positions;         // of a warpgroup
  bool along_positions;  // the warpgroups of a block share columns, else positions
  int parts;             // 16-bit numbers that a source number becomes
  int blocks_per_sm;
};

struct PreconvertedTiling {
  int planes, taps;  // of one step, which has 32 rows; planes as the source has them
  int row_steps, plane_steps, tap_steps, count;
  int source_bytes;  // of a full step
  int weight_bytes;
  int stages, shared_bytes;
  int usable;                     // of the columns of a subtile: whole channels where that wastes little
  int tile_columns;               // of a block, as packed
  int tile_positions;             // of a block
  bool by_warps;                  // channels end at every eighth column
  bool interleaved;               // a channel's classes lie side by side and fill its row
  bool positions_first;           // neighbouring blocks: other positions, else other columns
  std::int64_t sample_positions;  // of a sample that are written
  std::int64_t column_tiles, position_tiles, tiles;
  int slices, row_steps_of_slice;  // of the reduction; partial sums are added up afterwards, in their order
  std::int64_t blocks;             // tiles * slices
  std::int64_t partial_bytes;      // 0 for one slice
  std::int64_t packed_bytes;
  unsigned grid;
  SourceLayout source;
  FastDivide by_tiles, by_column_tiles, by_position_tiles, by_classes, by_usable;
};

/// Cut into at most `slices`. count == 0 where nothing fits.
[[nodiscard]] PreconvertedTiling make_preconverted_tiling(const TapGemm& gemm, const PreconvertedShape& shape, int slices,
                                                          int sm_count, int shared_limit);

/// The kernels there are for operands of `parts` parts.
[[nodiscard]] std::span<const PreconvertedShape> preconverted_shapes(int parts);

/// The estimated seconds of all launches, weights packed, with numbers of `element_bytes` bytes.
[[nodiscard]] double preconverted_cost(const TapGemm& gemm, const PreconvertedTiling& tiling, const PreconvertedShape& shape,
                                       int element_bytes, int sm_count);

}  // namespace polyphase::cuda::tensor_core
