#pragma once
// How the kernel of kernel.cuh cuts a problem. Host arithmetic only.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased4Groups = 2;       // consumer warpgroups of a block
inline constexpr int kPhased4Positions = 128;  // of a tile: units of a sample
inline constexpr int kPhased4Columns = 256;    // of a tile: classes of the stride, of each its channels
inline constexpr int kPhased4Quarter = kPhased4Columns / 4;
inline constexpr int kPhased4Rows = 16;                       // that one product reads
inline constexpr int kPhased4Width = kPhased4Positions + 16;  // elements of a row that a tile reads, its neighbours among them
inline constexpr int kPhased4StagesMost = 8;
inline constexpr int kPhased4BarrierBytes = 128 + 16 * kPhased4StagesMost;

/// Which classes of a unit read a neighbour: of the farthest ahead the classes from quarter `from` of the stride on, then of
/// `middle` neighbours all, of the farthest behind those before quarter `until`. 0: there is no such neighbour.
struct Phased4Pattern {
  int from, middle, until;
  [[nodiscard]] constexpr int shifts() const { return (from > 0 ? 1 : 0) + middle + (until > 0 ? 1 : 0); }
  /// Columns of all products of kPhased4Rows rows.
  [[nodiscard]] constexpr int columns() const { return kPhased4Quarter * ((from > 0 ? 4 - from : 0) + 4 * middle + until); }
  bool operator==(const Phased4Pattern&) const = default;
};

/// Kernels there are: K = 2*S between neighbours (vocoders), K = 25 of stride 4 around one (WaveGAN).
inline constexpr Phased4Pattern kPhased4Patterns[] = {{2, 1, 2}, {1, 5, 2}};

/// Products of kPhased4Rows rows in a stage.
[[nodiscard]] constexpr int unit_depths(const Phased4Pattern& pattern) { return pattern.columns() > 768 ? 1 : 2; }
/// Bytes of a stage: weights and source.
[[nodiscard]] constexpr int unit_stage_bytes(const Phased4Pattern& pattern) {
  return unit_depths(pattern) * kPhased4Rows * 2 * (pattern.columns() + kPhased4Width);
}

/// f32 as two halves: the columns of a tile are two halves, and a product is of one of those.
inline constexpr int kPhased4F32Columns = 128, kPhased4F32Half = 64;
inline constexpr int kPhased4F32Width = kPhased4Positions + 8;

/// Columns of all products of kPhased4Rows rows.
[[nodiscard]] constexpr int f32_unit_columns(const Phased4Pattern& pattern) {
  return pattern.columns() / (kPhased4Columns / kPhased4F32Columns);
}
/// Bytes of 16 rows as halves, and where the low ones begin.
inline constexpr int kPhased4F32Low = (kPhased4F32Width / 2 + 1) * 64, kPhased4F32ElementBytes = 2 * kPhased4F32Low;
/// Bytes of a stage, 16 rows: both parts of weights and of source. It begins at a multiple of 128.
[[nodiscard]] constexpr int f32_unit_stage_bytes(const Phased4Pattern& pattern) {
  return f32_unit_columns(pattern) * kPhased4Rows * 4 + kPhased4F32ElementBytes;
}
/// Stages of the source as it comes, their bytes, and the threads that make halves of it.
inline constexpr int kPhased4F32Raws = 2, kPhased4F32RawBytes = kPhased4Rows * kPhased4F32Width * 4, kPhased4F32Makers = 96;
inline constexpr int kPhased4F32BarrierBytes = 32 * kPhased4StagesMost + 16 * kPhased4F32Raws + 128;

struct Phased4Tiling {
  int pattern;   // of kPhased4Patterns
  int channels;  // of a tile
  int count;     // products of kPhased4Rows rows
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
[[nodiscard]] Phased4Tiling make_phased4_tiling(const ConvProblem& problem, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
