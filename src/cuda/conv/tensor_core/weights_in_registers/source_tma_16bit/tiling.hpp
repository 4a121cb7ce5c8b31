#pragma once
// The tiling of kernel.cuh, and the boxes of the tensors that the tiles use. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kTma16Columns = 64;  // gemm_m
inline constexpr int kTma16DepthsMost = 20;
inline constexpr int kTma16MapsMost = 4;
inline constexpr int kTma16RingMost = 8;
inline constexpr int kTma16Consumers = 2;

/// The offsets of the arrays, in elements after a multiple of 16 and of 32 bytes.
struct Tma16Place {
  int source = 0, out = 0;
};

/// A tensor map treats rows with different offsets in a vector as if they had the same: each begins `skew` elements later than
/// the map says. Dimensions: numbers, `group` neighbouring rows, every `classes`-th row.
struct Tma16Rows {
  int classes;  // rows from one to the next with the same offset
  int group;    // neighbouring rows in one map
  int maps;     // classes / group
  int skew;     // elements, of either sign
};

struct Tma16Tiling {
  int depths;                    // steps of gemm_k: products of 16 rows at one tap
  int kernel_depths, positions;  // of the kernel: the depths it has room for, positions per tile
  int rows, columns, stride;     // of the source and of the output; outputs per position
  // Boxes of the source: all rows, `pitch` elements of each. Operand tiles: [block of 8 rows][slot][8 rows].
  Tma16Rows source;
  int pitch, slots, first_slot;             // the slot of a tile's first position at window 0
  std::int64_t source_first;                // the map's number where tile 0 begins: a multiple of 8
  int source_offset;                        // from the first number of the map to the first of row 0
  std::uint32_t product[kTma16DepthsMost];  // 16-byte units from an operand tile to the first slot of a product
  // Boxes of the output: `window` elements of each row, from a sector on.
  Tma16Rows out;
  int window, least_shift, most_shift;  // from a tile's first output to a window
  int out_offset[kTma16MapsMost];       // from the first number of a map to the first of its row 0
  int window_shift[kTma16MapsMost];     // from a tile's first output to the window of a map's row 0
  std::int64_t out_first;               // tile 0's first output
  bool is_even;                         // all windows begin an even number of elements from there
  std::int64_t tiles_of_row, tiles;
  FastDivide by_tiles;
  int raw_stages, raw_bytes, stages, tile_bytes, staging_bytes, shared_bytes;
  unsigned grid;
  std::int64_t packed_bytes;

  /// From a tile's first output to the window of row `c`; and the place of that row in the staging, in rows.
  [[nodiscard]] constexpr int shift_of(int c) const {
    const int within = c % out.classes, map = within / out.group, i = within % out.group;
    return window_shift[map] - i * out.skew;
  }
  [[nodiscard]] constexpr int staged_row(int c) const {
    const int within = c % out.classes, map = within / out.group, i = within % out.group;
    return (map * (columns / out.classes) + c / out.classes) * out.group + i;
  }
};

/// depths == 0 if the problem is not of this kind or does not fit: one group, one class and one plane of taps, up to 64
/// columns, rows in blocks of 16.
[[nodiscard]] Tma16Tiling make_tma16_tiling(const TapGemm& gemm, Tma16Place place, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
