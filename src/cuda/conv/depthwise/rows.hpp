#pragma once
// When the input gradient of many rows into one has a kernel of its own (rows.cuh). Plain host code.

#include <algorithm>
#include <cstdint>

#include "conv/problem.hpp"

namespace polyphase::cuda::depthwise {

/// Quads that hold four positions and their taps.
[[nodiscard]] inline int row_quads(const ConvProblem& problem) { return static_cast<int>((problem.K + 6) / 4); }

/// Whether rows_dgrad() can do the problem, and is faster than adding one row after the other: f32, G = C_in, S = D = 1,
/// K <= 17, at least 8 rows of y to a row of x, whose weights fit shared memory, rows below 2^30 positions, less than 2^32
/// tiles.
[[nodiscard]] inline bool has_many_rows(const ConvProblem& p, ConvDirection direction) {
  constexpr std::int64_t kLeastRows = 8, kMostTaps = 17, kMostWeights = 11 * 1024, kLongest = 1 << 30;
  const std::int64_t rows = p.channels_out_per_group();
  return direction == ConvDirection::dgrad && p.dtype == DType::f32 && p.G == p.C_in && p.S == 1 && p.D == 1 &&
         p.K <= kMostTaps && rows >= kLeastRows && rows * 4 * row_quads(p) <= kMostWeights && p.P_l < kLongest / 4 &&
         std::max(p.L_in, p.L_out) < kLongest && p.N * p.C_in * (p.L_in / 128 + 2) < std::int64_t{1} << 32;
}

}  // namespace polyphase::cuda::depthwise
