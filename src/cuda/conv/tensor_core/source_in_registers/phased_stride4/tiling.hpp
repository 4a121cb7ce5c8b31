#pragma once
// How the kernel of kernel.cuh cuts a problem. Host arithmetic only.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kUnitGroups = 2;       // consumer warpgroups of a block
inline constexpr int kUnitPositions = 128;  // of a tile: units of a sample
inline constexpr int kUnitColumns = 256;    // of a tile: classes of the stride, of each its channels
inline constexpr int kUnitQuarter = kUnitColumns / 4;
inline constexpr int kUnitRows = 16;                    // that one product reads
inline constexpr int kUnitWidth = kUnitPositions + 16;  // elements of a row that a tile reads, its neighbours among them
inline constexpr int kUnitStagesMost = 8;
inline constexpr int kUnitBarrierBytes = 128 + 16 * kUnitStagesMost;

/// Which classes of a unit read a neighbour: of the farthest ahead the classes from quarter `from` of the stride on, then of
/// `middle` neighbours all, of the farthest behind those before quarter `until`. 0: there is no such neighbour.
struct UnitPattern {
  int from, middle, until;
  [[nodiscard]] constexpr int shifts() const { return (from > 0 ? 1 : 0) + middle + (until > 0 ? 1 : 0); }
  /// Columns of all products of kUnitRows rows.
  [[nodiscard]] constexpr int columns() const { return kUnitQuarter * ((from > 0 ? 4 - from : 0) + 4 * middle + until); }
  bool operator==(const UnitPattern&) const = default;
};

/// Kernels there are: K = 2*S between neighbours (vocoders), K = 25 of stride 4 around one (WaveGAN).
inline constexpr UnitPattern kUnitPatterns[] = {{2, 1, 2}, {1, 5, 2}};

/// Products of kUnitRows rows in a stage.
[[nodiscard]] constexpr int unit_depths(const UnitPattern& pattern) { return pattern.columns() > 768 ? 1 : 2; }
/// Bytes of a stage: weights and source.
[[nodiscard]] constexpr int unit_stage_bytes(const UnitPattern& pattern) {
  return unit_depths(pattern) * kUnitRows * 2 * (pattern.columns() + kUnitWidth);
}

/// f32 as two halves: the columns of a tile are two halves, and a product is of one of those.
inline constexpr int kSplitUnitColumns = 128, kSplitUnitHalf = 64;
inline constexpr int kSplitUnitWidth = kUnitPositions + 8;

/// Columns of all products of kUnitRows rows.
[[nodiscard]] constexpr int split_unit_columns(const UnitPattern& pattern) {
  return pattern.columns() / (kUnitColumns / kSplitUnitColumns);
}
/// Bytes of 16 rows as halves, and where the low ones begin.
inline constexpr int kSplitUnitLow = (kSplitUnitWidth / 2 + 1) * 64, kSplitUnitElementBytes = 2 * kSplitUnitLow;
/// Bytes of a stage, 16 rows: both parts of weights and of source. It begins at a multiple of 128.
[[nodiscard]] constexpr int split_unit_stage_bytes(const UnitPattern& pattern) {
  return split_unit_columns(pattern) * kUnitRows * 4 + kSplitUnitElementBytes;
}
/// Stages of the source as it comes, their bytes, and the threads that make halves of it.
inline constexpr int kSplitUnitRaws = 2, kSplitUnitRawBytes = kUnitRows * kSplitUnitWidth * 4, kSplitUnitMakers = 96;
inline constexpr int kSplitUnitBarrierBytes = 32 * kUnitStagesMost + 16 * kSplitUnitRaws + 128;

struct UnitSteps {
  int pattern;   // of kUnitPatterns
  int channels;  // of a tile
  int count;     // products of kUnitRows rows
  int stages, shared_bytes;
  int first, lead;            // from a unit to the first element that is read of its row; from there to what it needs first
  int first_shift;            // from a unit to the farthest behind that it needs
  std::int64_t units;         // of a row: S neighbouring outputs
  std::int64_t tiles;         // of positions, all samples
  std::int64_t column_tiles;  // all groups
  std::int64_t turns;         // tiles of columns and of positions
  unsigned grid;
  FastDivide by_tiles_of_row, by_column_tiles, by_channel_tiles;
  std::int64_t packed_bytes;
};

/// count == 0 where the problem is not one of this kind: 16-bit types or f32 as two halves, forward, stride 4 or 8, a pattern
/// that there is, rows of whole vectors.
[[nodiscard]] UnitSteps make_unit_steps(const ConvProblem& problem, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
