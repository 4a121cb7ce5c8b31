#pragma once
// A residual unit: two convolutions with an activation before each, and a sum. Plain data.

#include <array>
#include <cstdint>

#include "conv/algorithm.hpp"
#include "tensor/dtype.hpp"

namespace polyphase {

/// out = x + scale*(conv1(act1(conv0(act0(x)) + b0)) + b1), x and out (N, C, L), weights (C, C, K[i]), biases (C) or none:
/// Conv1d with dilation D[i] and D[i]*(K[i] - 1)/2 zeros at both ends, which is a whole number. The first may be depthwise,
/// with weights (C, 1, K[0]). Rounded to the dtype are the activated x, the first sums with their bias, the second activation
/// and the result; a device may round the second sums too.
struct ResidualUnit {
  std::int64_t N = 1, C = 1, L = 1;
  std::array<std::int64_t, 2> K{1, 1}, D{1, 1};
  std::array<double, 2> slope{1, 1};  ///< act(v) = v < 0 ? slope*v : v; 0: ReLU
  bool is_depthwise = false;          ///< conv0
  bool is_snake = false;              ///< act(v) = v + sin(alpha*v)^2/beta with a channel's alpha and beta; no slope
  double scale = 1;
  DType dtype = DType::f32;
  Precision precision = Precision::fp32;  ///< of f32: with tf32 what the convolutions read may be rounded to tf32

  [[nodiscard]] std::int64_t padding(std::size_t i) const { return D[i] * (K[i] - 1) / 2; }
};

}  // namespace polyphase
