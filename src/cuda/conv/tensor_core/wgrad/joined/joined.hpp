#pragma once
// The weight gradient of a batch of short samples as that of one long sample.
//
// A tile of the reduction is 64 positions of a row. A batch of rows of ten positions would fill a sixth of them. So the samples
// are copied into rows one behind another, with zeros between them where a tap of one would reach the next.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "conv/problem.hpp"

struct CUstream_st;

namespace polyphase::cuda::tensor_core {

/// The joined form of a batch: its weight gradient is that of the batch.
struct JoinedSamples {
  ConvProblem problem;     ///< N = 1; L_in is a multiple of 8 and L_out = S*L_in
  std::int64_t pitch = 0;  ///< positions of x from one sample's first to the next's; those of y are S times as many
};

/// Nothing for a single sample, and where rows would have 2^31 positions or more.
[[nodiscard]] std::optional<JoinedSamples> join_samples(const ConvProblem& problem);

/// Bytes of the joined x and y.
[[nodiscard]] std::int64_t joined_bytes(const JoinedSamples& joined);

/// The estimated seconds of both copies. An assumption, not a fit.
[[nodiscard]] double join_seconds(const JoinedSamples& joined);

/// to (C, length) = the samples of `from` (N, C, L), each `pitch` behind the one before it, and zeros. Elements have `bytes`
/// bytes, 2 or 4. On `stream`.
void copy_joined(void* to, const void* from, std::size_t bytes, std::int64_t N, std::int64_t C, std::int64_t L,
                 std::int64_t pitch, std::int64_t length, CUstream_st* stream);

}  // namespace polyphase::cuda::tensor_core
