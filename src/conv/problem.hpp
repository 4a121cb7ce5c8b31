#pragma once
// The description of a 1-D convolution, from layer to kernel.
//
// Letters as in docs/notation.md. The problem is always that of ConvTranspose1d:
//   x (N, C_in, L_in)   w (C_in, C_out/G, K)   y (N, C_out, L_out)
//   L_out = (L_in - 1)*S - P_l - P_r + D*(K - 1) + OP + 1
// and it has three directions:
//   forward  y[n,co,t]  = b[co] + sum over ci, k with t + P_l - k*D = S*i of x[n,ci,i] * w[ci,co,k]     (phase gather)
//   dgrad    x[n,ci,i]  = b[ci] + sum over co, k of y[n,co, S*i + k*D - P_l] * w[ci,co,k]               (strided)
//   wgrad    w[ci,co,k] = sum over n, i of x[n,ci,i] * y[n,co, S*i + k*D - P_l]                         (weight gradient)
// Conv1d is the same problem in the opposite direction: its input is the problem's y and its output the problem's x. So its
// forward is `dgrad`, its input gradient is `forward`, and its weight (C_out, C_in/G, K) is w unchanged.

#include <cstdint>
#include <iosfwd>

#include "../tensor/dtype.hpp"
#include "../tensor/map_op.hpp"

namespace polyphase {

/// A shape and its hyper-parameters. Trivially copyable; validated by the functions that make one.
struct ConvProblem {
  std::int64_t N = 1;
  std::int64_t C_in = 1;   ///< channels of the low-rate side x
  std::int64_t C_out = 1;  ///< channels of the high-rate side y
  std::int64_t L_in = 1;
  std::int64_t L_out = 1;
  std::int64_t K = 1;    ///< kernel size
  std::int64_t S = 1;    ///< stride
  std::int64_t P_l = 0;  ///< padding cropped from (ConvTranspose1d) or added to (Conv1d) y's left end
  std::int64_t P_r = 0;
  std::int64_t OP = 0;  ///< output padding: positions added at y's right end
  std::int64_t D = 1;   ///< dilation
  std::int64_t G = 1;   ///< groups
  DType dtype = DType::f32;

  [[nodiscard]] std::int64_t channels_in_per_group() const { return C_in / G; }
  [[nodiscard]] std::int64_t channels_out_per_group() const { return C_out / G; }
  [[nodiscard]] bool is_depthwise() const { return G == C_in && G > 1; }
  /// Counts a multiply-add as two operations, without bias and without subtracting edges: 2*N*C_in*(C_out/G)*K*L_in.
  [[nodiscard]] double operations() const;
  friend bool operator==(const ConvProblem&, const ConvProblem&) = default;
};

/// The three sums.
enum class ConvDirection : std::uint8_t { forward, dgrad, wgrad };

/// (L_in - 1)*S - P_l - P_r + D*(K - 1) + OP + 1; may be zero or negative, which callers reject.
[[nodiscard]] std::int64_t conv_transpose1d_length(std::int64_t L_in, std::int64_t K, std::int64_t S, std::int64_t P_l,
                                                   std::int64_t P_r, std::int64_t OP, std::int64_t D);

/// `N=16 C_in=32 C_out=64 L_in=131072 ... f32`, for errors, logs and cache keys: every field appears.
std::ostream& operator<<(std::ostream& out, const ConvProblem& problem);
std::ostream& operator<<(std::ostream& out, ConvDirection direction);

}  // namespace polyphase
