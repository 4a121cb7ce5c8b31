#pragma once
// How a launch of the tensor-core weight gradient cuts the work. Host arithmetic only.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "conv/problem.hpp"
#include "cuda/conv/sm90/tile.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kChunk = 64;         // low-rate positions of a step
inline constexpr int kWgradColumns = 64;  // channels of y of a block
inline constexpr int kWgradTaps = 3;

struct WgradSteps {
  int rows;     // channels of x of a block: 128, or 64 with the two consumers taking turns along the positions
  int taps;     // of a block
  bool shared;  // its taps are one window of y, tap_step positions apart; else a window each
  int tap_step;
  Tile x, y;
  int x_bytes, stage_bytes, stages, shared_bytes;
  std::int64_t row_tiles, column_tiles, tap_tiles;
  std::int64_t jobs;  // blocks of a slice
  std::int64_t chunks_per_row, chunks, chunks_per_slice, slices;
  std::int64_t partial_slices;  // what is written: two a slice where the consumers take turns
};

/// `partial_limit`: bytes that the partial sums may take.
[[nodiscard]] WgradSteps make_wgrad_steps(const ConvProblem& problem, int parts, int vector, int sm_count, int shared_limit,
                                          std::size_t partial_limit);

/// Why the weight gradient cannot be done, or nothing.
[[nodiscard]] std::optional<std::string> wgrad_problem(const ConvProblem& problem, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
