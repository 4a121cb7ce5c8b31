#pragma once
// How a reduction is split into tasks: a pure function of shape and strides, and so are the bits. Internal.

#include <algorithm>
#include <cstdint>

#include "tensor/shape.hpp"

namespace polyphase::cuda {

struct Dimension {
  std::int64_t size = 1, stride = 0;
};

/// Dimensions processed together, outermost first; dimensions that are contiguous in memory are merged.
struct Dimensions {
  Dimension at[kMaxRank];
  int rank = 0;
  std::int64_t count = 1;

  void push(Dimension d) {
    count *= d.size;
    if (rank > 0 && at[rank - 1].stride == d.stride * d.size) {
      at[rank - 1] = {at[rank - 1].size * d.size, d.stride};
    } else {
      at[rank++] = d;
    }
  }
  /// The innermost dimension; one element if there is none.
  [[nodiscard]] Dimension inner() const { return rank == 0 ? Dimension{} : at[rank - 1]; }
  Dimension take_inner() {
    const Dimension taken = inner();
    if (rank > 0) --rank;
    count /= taken.size;
    return taken;
  }
};

/// The kept and the reduced dimensions of an input; the reduced ones in memory order.
struct ReduceSpaces {
  Dimensions kept, reduced;
};
[[nodiscard]] inline ReduceSpaces split_dimensions(const Shape& out, const Shape& in, const Shape& strides) {
  ReduceSpaces spaces;
  Dimension reduced[kMaxRank];
  int count = 0;
  for (int d = 0; d < in.rank(); ++d) {
    if (in[d] == 1) continue;
    if (out[d] == 1) {
      reduced[count++] = {in[d], strides[d]};
    } else {
      spaces.kept.push({in[d], strides[d]});
    }
  }
  std::stable_sort(reduced, reduced + count, [](Dimension a, Dimension b) { return a.stride > b.stride; });
  for (int i = 0; i < count; ++i) spaces.reduced.push(reduced[i]);
  return spaces;
}

/// Whether a thread should compute an output by itself (outputs are neighbours in memory, or there is little to reduce for
/// each); else many threads share one.
[[nodiscard]] inline bool reduce_by_columns(const ReduceSpaces& spaces) {
  const bool side_by_side =
      spaces.kept.inner().stride == 1 && spaces.reduced.inner().stride != 1 && spaces.kept.inner().size >= 8;
  return side_by_side || spaces.reduced.count < 32;
}

/// Rows of the innermost reduced dimension, split into pieces: part of a long row or a group of short ones.
struct RowPieces {
  static constexpr std::int64_t kPiece = 8192;    // 32 KB of f32: several times the outstanding loads of a block
  static constexpr std::int64_t kThreadRun = 16;  // elements of a row that keep a thread's loads outstanding
  std::int64_t cut;                               ///< the most elements of one row in a piece
  std::int64_t cuts;                              ///< pieces per row
  std::int64_t group;                             ///< rows per piece
  std::int64_t pieces;                            ///< per output
  int lanes;                                      ///< threads that share a piece
  int row_lanes;  ///< of these, threads that share a row; the others read further rows meanwhile
};
[[nodiscard]] inline RowPieces cut_rows(std::int64_t rows, std::int64_t inner) {
  RowPieces p{};
  p.cuts = (inner + RowPieces::kPiece - 1) / RowPieces::kPiece;
  p.cut = RowPieces::kPiece;
  p.group = p.cuts > 1 ? 1 : std::max<std::int64_t>(1, RowPieces::kPiece / inner);
  p.pieces = p.cuts * ((rows + p.group - 1) / p.group);
  if (p.pieces <= 4) p = {inner, 1, rows, 1, 0, 0};  // a second launch costs more than a longer first one
  p.lanes = p.pieces == 1 && rows * inner <= 1024 ? 32 : 256;
  // A single thread with one load per row would wait for memory once per row.
  p.row_lanes = p.lanes;
  while (p.row_lanes > 32 && p.lanes / p.row_lanes < p.group && inner < p.row_lanes * RowPieces::kThreadRun) p.row_lanes /= 2;
  return p;
}

/// The sum of a function of two flat tensors, in blocks of kPairThreads. Few elements go to one block, which needs no second
/// launch.
inline constexpr int kPairThreads = 512;
inline constexpr std::int64_t kShortPair = 8192;
inline constexpr int kPairBlocks = 1024;  // one block adds their sums in the second launch
[[nodiscard]] inline std::int64_t pair_blocks(std::int64_t count) {
  constexpr std::int64_t kPairPiece = 2048;  // 16 bytes of f32 per thread: data is in the caches, so latency counts
  return count <= kShortPair ? 1 : std::min<std::int64_t>(kPairBlocks, (count + kPairPiece - 1) / kPairPiece);
}

/// Rows that one thread adds in the columns kernel, and the number of such pieces.
inline constexpr std::int64_t kColumnRows = 128;
[[nodiscard]] inline std::int64_t column_pieces(std::int64_t rows) {
  return rows <= 2 * kColumnRows ? 1 : (rows + kColumnRows - 1) / kColumnRows;
}

}  // namespace polyphase::cuda
