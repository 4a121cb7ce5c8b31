#pragma once
// How a convolution's forward or dgrad becomes matrix products over packed rows. Internal to cpu/.
//
// Both have one form. With a virtual position q,
//   out[m, out_stride*q + r] = sum over channels c and the taps of phase r of
//                              in[c, in_stride*(q + shift) + residue] * w[m, c, k]
//   forward: out_stride = S, in_stride = 1; k*D - P_l = phase - S*shift, so that phase r is the outputs t with t mod S = r
//   dgrad:   out_stride = 1, in_stride = S; one phase; k*D - P_l = residue + S*shift
// For a tile of consecutive q each (channel, residue) is a row of packed memory in which q advances by one element for any
// strides, so a tap is an offset. Taps that are close share a row (a segment); distant ones (large D) get rows of their own.

#include <cstdint>
#include <vector>

#include "conv/problem.hpp"

namespace polyphase::cpu {

struct Tap {
  std::int64_t k = 0;
  std::int64_t residue = 0;
  std::int64_t shift = 0;
};

/// Sizes and strides of the common form. Elements, not bytes.
struct GatherShape {
  std::int64_t N, G;
  std::int64_t M;  ///< output channels per group
  std::int64_t R;  ///< input channels per group
  std::int64_t K;
  std::int64_t in_length, out_length;
  std::int64_t in_stride, out_stride;
  std::int64_t q_first = 0;  ///< outputs from here on are computed
  std::int64_t q_count;
  std::int64_t w_group, w_row, w_channel;  ///< strides of w over groups, output and input channels; 1 over taps
  std::vector<std::vector<Tap>> phases;    ///< (out_stride), each in ascending k
};

/// The common form of `direction`, which must be forward or dgrad.
[[nodiscard]] GatherShape gather_shape(const ConvProblem& problem, ConvDirection direction);

/// Virtual positions [begin, end).
struct Interior {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The q at which every tap of `phase` reads an element of the row. At all other q some tap reads padding.
[[nodiscard]] Interior interior(const GatherShape& shape, std::size_t phase);

/// A packed row: positions [first, first + span + tile) of one residue, at `base` within its channel.
struct Segment {
  std::int64_t residue = 0;
  std::int64_t first = 0;
  std::int64_t span = 0;
  std::int64_t base = 0;
};

/// The layout of one packed tile (R, channel_pitch) and the offset of each tap's row in it.
struct TileLayout {
  std::vector<Segment> segments;
  std::int64_t channel_pitch = 0;                     ///< elements per channel, a multiple of the vector length
  std::vector<std::vector<std::int64_t>> tap_offset;  ///< (phases, taps) within a channel
};

/// The layout of rows for tiles of `positions`; `lanes` is the vector length.
[[nodiscard]] TileLayout tile_layout(const GatherShape& shape, std::int64_t positions, std::int64_t lanes);

}  // namespace polyphase::cpu
