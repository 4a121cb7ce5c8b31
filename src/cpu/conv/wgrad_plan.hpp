#pragma once
// How wgrad's sum over positions (n, i) is split into blocks, and the layout of a block of y. Internal to cpu/.

#include <cstdint>
#include <vector>

#include "conv/problem.hpp"

namespace polyphase::cpu {

/// Where the packed y of one sample's window has the row that tap k needs at position i: row tap_row[k] + i*step.
struct WindowLayout {
  std::vector<std::int64_t>
      where;  // (window) row of each position of the window, -1: not needed; empty if taps are packed one by one
  std::vector<std::int64_t> tap_row;  // (K)
  std::int64_t rows = 0;
  std::int64_t step = 1;
  std::int64_t pitch = 0;  // elements per row
  bool joint = false;      // the rows of all taps are contiguous: vectors may span taps
};

/// The layout for windows of `positions`; the row length is a multiple of `lanes` unless joint.
[[nodiscard]] WindowLayout window_layout(const ConvProblem& problem, std::int64_t positions, std::int64_t lanes);

/// Positions of one block: `samples` rows, `positions` of each.
struct BlockShape {
  std::int64_t samples = 1;
  std::int64_t positions = 1;
};

/// About 512 positions: whole rows of several samples, or an equal part of one row; fewer if y would take too much memory.
[[nodiscard]] BlockShape block_shape(const ConvProblem& problem, std::int64_t lanes);

}  // namespace polyphase::cpu
