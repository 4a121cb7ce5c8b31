#pragma once
// Tilings of the kernel in kernel.cuh. Host arithmetic only.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased4Groups = 2;       // consumer warpgroups per block
inline constexpr int kPhased4Positions = 128;  // per tile: units of a sample
inline constexpr int kPhased4Columns = 256;    // per tile: the classes of the stride, each with its channels
inline constexpr int kPhased4Quarter = kPhased4Columns / 4;
inline constexpr int kPhased4Rows = 16;                       // per product
inline constexpr int kPhased4Width = kPhased4Positions + 16;  // elements of a row that a tile reads, neighbours included
inline constexpr int kPhased4StagesMost = 8;
inline constexpr int kPhased4BarrierBytes = 128 + 16 * kPhased4StagesMost;

/// The classes of a unit that read a neighbour. The farthest ahead: from quarter `from` of the stride on; then `middle`
/// neighbours: all; the farthest behind: before quarter `until`. 0: there is no such neighbour.
struct Phased4Pattern {
  int from, middle, until;
  [[nodiscard]] constexpr int shifts() const { return (from > 0 ? 1 : 0) + middle + (until > 0 ? 1 : 0); }
  /// Columns of all products of kPhased4Rows rows.
  [[nodiscard]] constexpr int columns() const { return kPhased4Quarter * ((from > 0 ? 4 - from : 0) + 4 * middle + until); }
  bool operator==(const Phased4Pattern&) const = default;
};

/// The patterns with kernels: K = 2*S between neighbours (vocoders), K = 25 with stride 4 around one (WaveGAN).
inline constexpr Phased4Pattern kPhased4Patterns[] = {{2, 1, 2}, {1, 5, 2}};

/// Products of kPhased4Rows rows per stage.
[[nodiscard]] constexpr int unit_depths(const Phased4Pattern& pattern) { return pattern.columns() > 768 ? 1 : 2; }
/// Bytes per stage: weights and source.
[[nodiscard]] constexpr int unit_stage_bytes(const Phased4Pattern& pattern) {
  return unit_depths(pattern) * kPhased4Rows * 2 * (pattern.columns() + kPhased4Width);
}

/// f32 as two halves: the columns of a tile form two halves, and a product belongs to one of them.
inline constexpr int kPhased4F32Columns = 128, kPhased4F32Half = 64;
inline constexpr int kPhased4F32Width = kPhased4Positions + 8;

/// Columns of all products of kPhased4Rows rows.
[[nodiscard]] constexpr int f32_unit_columns(const Phased4Pattern& pattern) {
  return pattern.columns() / (kPhased4Columns / kPhased4F32Columns);
}
/// Bytes of 16 rows as halves, and the offset of the low ones.
inline constexpr int kPhased4F32Low = (kPhased4F32Width / 2 + 1) * 64, kPhased4F32ElementBytes = 2 * kPhased4F32Low;
/// Bytes per stage, 16 rows: both parts of weights and source. It begins at a multiple of 128.
[[nodiscard]] constexpr int f32_unit_stage_bytes(const Phased4Pattern& pattern) {
  return f32_unit_columns(pattern) * kPhased4Rows * 4 + kPhased4F32ElementBytes;
}
/// Stages of the unconverted source, their bytes, and the threads that convert it to halves.
inline constexpr int kPhased4F32Raws = 2, kPhased4F32RawBytes = kPhased4Rows * kPhased4F32Width * 4, kPhased4F32Makers = 96;
inline constexpr int kPhased4F32BarrierBytes = 32 * kPhased4StagesMost + 16 * kPhased4F32Raws + 128;

struct Phased4Tiling {
  int pattern;   // of kPhased4Patterns
  int channels;  // per tile
  int count;     // products of kPhased4Rows rows
  int stages, shared_bytes;
  int first, lead;  // from a unit to the first element of its row that is read; from there to the first element that it needs
  int first_shift;  // from a unit to the farthest element behind that it needs
  std::int64_t units;         // per row: groups of S neighbouring outputs
  std::int64_t tiles;         // of positions, in all samples
  std::int64_t column_tiles;  // in all groups
  std::int64_t turns;         // tiles of columns and of positions
  unsigned grid;
  FastDivide by_tiles_of_row, by_column_tiles, by_channel_tiles;
  std::int64_t packed_bytes;
};

/// count == 0 if the problem is not of this kind: 16-bit types or f32 as two halves, forward, stride 4 or 8, one of the
/// patterns, rows of whole vectors.
[[nodiscard]] Phased4Tiling make_phased4_tiling(const ConvProblem& problem, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
