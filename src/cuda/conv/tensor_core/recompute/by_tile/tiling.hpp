#pragma once
// Tiling of the by_tile kernel (kernel.cuh). Host arithmetic only.

#include <cstdint>
#include <optional>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/preconverted/tiling.hpp"
#include "cuda/conv/tensor_core/recompute/wide_blocks.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kByTileSharedBytes = 35328;  // of the kernel's own variables
inline constexpr int kFormF16 = 0, kFormTf32 = 1, kForms = 2;

/// Staging of the stores: half of the preconverted kernel's, for the pieces below.
inline constexpr int kByTileStagedBytes = kPreconvertedStagedBytes / 2;
inline constexpr int kByTileStaging = 4 * kPreconvertedGroups * preconverted_staging_of_warp(kByTileStagedBytes);

/// A converter warp copies the source to shared memory in pieces.
inline constexpr int kPieceRows = 8, kPieceWidth = 160, kPieceBytes = kPieceRows * kPieceWidth * 4;

inline constexpr int kPartRows = 32;

/// Rows in 16 bytes of an operand, by form: eight f16 or four tf32.
constexpr int rows_of_vector(int form) { return form == kFormF16 ? 8 : 4; }
/// Rows of a step, by form.
constexpr int rows_of_step(int form) { return rows_of_vector(form) * kPreconvertedBlocks; }

/// A unit is the positions of a sample and group that are converted together, with one scale and one form: 128, or 256 where
/// the two warpgroups of a block share 64 columns.
struct ByTileTiling {
  PreconvertedTiling steps;  // its samples begin at whole units, and its row steps are those of f16
  bool along_positions;
  int row_steps[kForms], counts[kForms];                // counts: the steps of a tile
  std::int64_t unit_positions, units_of_sample, units;  // units of all samples and groups
  std::int64_t half_bytes[kForms];                      // the operand of kWidePositions positions
  std::int64_t unit_bytes;                              // the larger form of a unit
  int parts;                                            // of a unit, which are converted separately: kPartRows rows each
  std::int64_t weight_bytes[kForms];                    // all columns
  int shared_bytes;                                     // of the pipeline: less than that of `steps`, by the staging
  int places;                                           // converted units that there is memory for
  int list_pieces, pack_pieces;                         // of the preparation: kPackParts for eight columns
  FastDivide by_units_of_sample, by_parts;
};

/// Nothing where no tiling fits or where it would need more than `most_bytes` of memory.
[[nodiscard]] std::optional<ByTileTiling> make_by_tile_tiling(const TapGemm& gemm, int parts, int sm_count, int shared_limit,
                                                              std::int64_t most_bytes);

/// Where a call's memory begins, in bytes: zeros at first, then what the kernel writes.
struct ByTileMemory {
  std::int64_t multiplied, ready, extents, marks, zeros;  // zeros: the end of what has to be zero
  std::int64_t list, unit_list, exponents, weights[kForms], units, bytes;
  std::uint32_t list_size;
  ByTileMemory(const TapGemm& gemm, const ByTileTiling& tiling);
};

}  // namespace polyphase::cuda::tensor_core
