#pragma once
// The activation that a convolution applies to its source as it reads it.

namespace polyphase::cuda {

/// Snake with alpha and beta of each channel, arrays of the problem's dtype; null: none.
struct SourceSnake {
  const void* alpha = nullptr;
  const void* beta = nullptr;
};

struct SourceActivation {
  float slope = 1;  ///< LeakyReLU: TapGemm::source_slope
  SourceSnake snake{};
};

}  // namespace polyphase::cuda
