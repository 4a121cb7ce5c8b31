#pragma once
// The condition for rows.cuh, the input gradient that sums many rows into one. Plain host code.

#include <algorithm>
#include <cstdint>

#include "conv/problem.hpp"

namespace polyphase::cuda::depthwise {

/// Quads that hold four positions and their taps.
[[nodiscard]] inline int row_quads(const ConvProblem& problem) { return static_cast<int>((problem.K + 6) / 4); }

/// Whether rows_dgrad() can compute the problem and is faster than adding row after row: f32, G = C_in, S = D = 1, K <= 17, at
/// least 8 rows of y per row of x, whose weights fit in shared memory, rows shorter than 2^30 positions, fewer than 2^32 tiles.
[[nodiscard]] inline bool has_many_rows(const ConvProblem& p, ConvDirection direction) {
  constexpr std::int64_t kLeastRows = 8, kMostTaps = 17, kMostWeights = 11 * 1024, kLongest = 1 << 30;
  const std::int64_t rows = p.channels_out_per_group();
  return direction == ConvDirection::dgrad && p.dtype == DType::f32 && p.G == p.C_in && p.S == 1 && p.D == 1 &&
         p.K <= kMostTaps && rows >= kLeastRows && rows * 4 * row_quads(p) <= kMostWeights && p.P_l < kLongest / 4 &&
         std::max(p.L_in, p.L_out) < kLongest && p.N * p.C_in * (p.L_in / 128 + 2) < std::int64_t{1} << 32;
}

}  // namespace polyphase::cuda::depthwise
