#pragma once
// How a reduction is cut into tasks: a pure function of shape and strides, so that bits depend on nothing else. Internal.

#include <algorithm>
#include <cstdint>

#include "tensor/shape.hpp"

namespace polyphase::cuda {

struct Dimension {
  std::int64_t size = 1, stride = 0;
};

/// Dimensions walked together, outermost first; those that follow each other in memory become one.
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
  /// The innermost dimension; one element where there is none.
  [[nodiscard]] Dimension inner() const { return rank == 0 ? Dimension{} : at[rank - 1]; }
  Dimension take_inner() {
    const Dimension taken = inner();
    if (rank > 0) --rank;
    count /= taken.size;
    return taken;
  }
};

/// What is kept and what is reduced of an input; reduced dimensions in the order of memory.
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

/// True where a thread should own an output (neighbours lie side by side, or there is little to reduce for each); else many
/// threads share one.
[[nodiscard]] inline bool reduce_by_columns(const ReduceSpaces& spaces) {
  const bool side_by_side =
      spaces.kept.inner().stride == 1 && spaces.reduced.inner().stride != 1 && spaces.kept.inner().size >= 8;
  return side_by_side || spaces.reduced.count < 32;
}

/// Rows of the innermost reduced dimension, cut into pieces: part of a long row or a group of short ones.
struct RowPieces {
  static constexpr std::int64_t kPiece = 8192;    // 32 KB of f32: a block's worth of loads in flight several times over
  static constexpr std::int64_t kThreadRun = 16;  // elements of a row that keep a thread's loads in flight
  std::int64_t cut;                               ///< elements of one row that a piece has at most
  std::int64_t cuts;                              ///< pieces of one row
  std::int64_t group;                             ///< rows of a piece
  std::int64_t pieces;                            ///< of one output
  int lanes;                                      ///< threads that share a piece
  int row_lanes;                                  ///< of them, those that share a row: the others read further rows meanwhile
};
[[nodiscard]] inline RowPieces cut_rows(std::int64_t rows, std::int64_t inner) {
  RowPieces p{};
  p.cuts = (inner + RowPieces::kPiece - 1) / RowPieces::kPiece;
  p.cut = RowPieces::kPiece;
  p.group = p.cuts > 1 ? 1 : std::max<std::int64_t>(1, RowPieces::kPiece / inner);
  p.pieces = p.cuts * ((rows + p.group - 1) / p.group);
  if (p.pieces <= 4) p = {inner, 1, rows, 1, 0, 0};  // a second launch costs more than a longer first one
  p.lanes = p.pieces == 1 && rows * inner <= 1024 ? 32 : 256;
  // A thread alone with one load of a row would wait for memory once a row.
  p.row_lanes = p.lanes;
  while (p.row_lanes > 32 && p.lanes / p.row_lanes < p.group && inner < p.row_lanes * RowPieces::kThreadRun) p.row_lanes /= 2;
  return p;
}

/// The sum of a function of two flat tensors: blocks of kPairThreads. Few elements go to one block, which needs no second
/// launch.
inline constexpr int kPairThreads = 512;
inline constexpr std::int64_t kShortPair = 8192;
inline constexpr int kPairBlocks = 1024;  // whose sums one block adds in the second launch
[[nodiscard]] inline std::int64_t pair_blocks(std::int64_t count) {
  constexpr std::int64_t kPairPiece = 2048;  // 16 bytes of f32 a thread: in the caches, latency counts
  return count <= kShortPair ? 1 : std::min<std::int64_t>(kPairBlocks, (count + kPairPiece - 1) / kPairPiece);
}

/// Rows that one thread adds up in the other form, and how many such pieces there are.
inline constexpr std::int64_t kColumnRows = 128;
[[nodiscard]] inline std::int64_t column_pieces(std::int64_t rows) {
  return rows <= 2 * kColumnRows ? 1 : (rows + kColumnRows - 1) / kColumnRows;
}

}  // namespace polyphase::cuda
