#pragma once
// The input gradient that sums many rows into one (rows.cuh), and its condition.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/source_activation.hpp"

namespace polyphase::cuda::depthwise {

/// Quads that hold four positions and their taps.
[[nodiscard]] inline int row_quads(const ConvProblem& problem) { return static_cast<int>((problem.K + 6) / 4); }

/// Whether rows_dgrad() can compute the problem and is faster than other ways: f32, f16 or bf16, one or two channels of x a
/// group, S = D = 1, K <= 17, at least 8 rows of y per row of x, whose weights fit in shared memory, rows shorter than 2^30
/// positions, fewer than 2^32 tiles. In 16 bits the tensor cores of band.cuh add long rows to one channel faster: only where a
/// row takes them longer to wait for (kRowSeconds of choice/plan.cpp) than to read.
[[nodiscard]] inline bool has_many_rows(const ConvProblem& p, ConvDirection direction) {
  constexpr std::int64_t kLeastRows = 8, kMostTaps = 17, kMostWeights = 11 * 1024, kLongest = 1 << 30;
  constexpr std::int64_t kLeastBytesOfRow = 1 << 20;  // all samples' rows of one channel
  const std::int64_t rows = p.channels_out_per_group(), channels = p.C_in / std::max<std::int64_t>(p.G, 1);
  const bool has_band = p.dtype != DType::f32 && channels == 1;
  if (p.dtype == DType::f64 || (has_band && p.N * p.C_in * p.L_out * 2 > kLeastBytesOfRow)) return false;
  return direction == ConvDirection::dgrad && (channels == 1 || channels == 2) && p.S == 1 && p.D == 1 && p.K <= kMostTaps &&
         rows >= kLeastRows && rows * 4 * row_quads(p) <= kMostWeights && p.P_l < kLongest / 4 &&
         std::max(p.L_in, p.L_out) < kLongest && p.N * p.C_in * (p.L_in / 128 + 2) < std::int64_t{1} << 32;
}

/// depthwise::gather() for a dgrad with has_many_rows().
void rows_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x, const SourceSnake& snake,
                const Epilogue& epilogue, cudaStream_t stream);
/// The same for 16 bits.
void rows_dgrad_16bit(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x,
                      const SourceSnake& snake, const Epilogue& epilogue, cudaStream_t stream);

}  // namespace polyphase::cuda::depthwise
