#pragma once
// The functional forms of the two convolutions. The sums are written out in conv/problem.hpp.

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "../conv/problem.hpp"
#include "../ops/conv_output.hpp"
#include "../tensor/tensor.hpp"

namespace polyphase {

/// Padding of the two ends of a row: `.padding = 3` or `.padding = {2, 3}`, or Padding::same() for conv1d with stride 1.
struct Padding {
  std::int64_t left = 0;
  std::int64_t right = 0;
  bool is_same = false;
  constexpr Padding() = default;
  constexpr Padding(std::int64_t both) : left(both), right(both) {}  // NOLINT: implicit, so that `.padding = 3` reads
  constexpr Padding(int both) : left(both), right(both) {}           // NOLINT
  constexpr Padding(std::int64_t l, std::int64_t r) : left(l), right(r) {}
  /// Keeps the length; an odd total puts the extra position on the right, as PyTorch's padding='same'.
  [[nodiscard]] static constexpr Padding same() {
    Padding padding;
    padding.is_same = true;
    return padding;
  }
  friend constexpr bool operator==(const Padding&, const Padding&) = default;
};

std::ostream& operator<<(std::ostream& out, PaddingMode mode);

struct ConvTranspose1dOptions {
  std::int64_t stride = 1;
  Padding padding = 0;
  std::int64_t output_padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  /// Requests this L_out; the output padding is derived from it (then `output_padding` must be 0).
  std::optional<std::int64_t> output_size{};
};

struct Conv1dOptions {
  std::int64_t stride = 1;
  Padding padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  PaddingMode padding_mode = PaddingMode::zeros;
};

/// x (N, C_in, L_in) or (C_in, L_in), w (C_in, C_out/G, K), b (C_out) or undefined -> (N, C_out, L_out) or (C_out, L_out),
/// L_out = (L_in - 1)*S - P_l - P_r + D*(K - 1) + OP + 1. Requires OP < max(S, D). Differentiable in x, w and b. f32, f64, f16,
/// bf16, the same for all tensors; the 16-bit types accumulate in f32. Algorithm and precision: conv/algorithm.hpp. Throws
/// ShapeError (sizes that do not fit, L_out < 1), DTypeError, DeviceError, and NotImplemented if the requested algorithm cannot
/// compute it.
[[nodiscard]] Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                      const ConvTranspose1dOptions& options = {});
/// A convolution followed by an activation and a sum, computed in the convolution's pass over memory if the device can:
///
///     pp::conv1d(x, w, b, {.padding = 1}, {.activation = pp::Activation::leaky_relu, .slope = 0.1, .residual = x})
///
/// The bits and gradients are those of add_scaled(residual, leaky_relu(conv_transpose1d(x, w, b, options)), scale). If
/// gradients are recorded, only the activation's result is kept (for snake its argument). With a residual, activations other
/// than snake are then a separate pass; under an AutocastGuard every step is. Also differentiable in alpha, beta and the
/// residual. Throws the errors of the steps; ShapeError, DTypeError or DeviceError if the residual does not match the output;
/// Error for a snake without alpha, for an alpha or beta without a snake, and for a scale without a residual.
///
/// `input` is an activation of x, which the convolution applies as it reads x if no gradients are recorded and the device can;
/// else it is a separate pass. Its bits are the same. Also differentiable in its alpha and beta. Error for
/// tanh, for a snake without alpha, and for an alpha or beta without a snake.
[[nodiscard]] Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                      const ConvTranspose1dOptions& options, const ConvOutputOptions& output,
                                      const ConvInputOptions& input = {});

/// x (N, C_in, L_in) or (C_in, L_in), w (C_out, C_in/G, K), b (C_out) or undefined -> (N, C_out, L_out) or (C_out, L_out),
/// L_out = (L_in + P_l + P_r - D*(K - 1) - 1)/S + 1 rounded down. Otherwise as conv_transpose1d.
[[nodiscard]] Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Conv1dOptions& options = {});
/// residual + scale*activation(conv1d(x, w, b, options)), as conv_transpose1d() with ConvOutputOptions.
[[nodiscard]] Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options,
                            const ConvOutputOptions& output, const ConvInputOptions& input = {});

/// A convolution of residual_unit(): as many channels out as in, and the length stays.
struct UnitConv1d {
  Tensor weight{};            ///< (C, C, K), required; the first one may be depthwise, (C, 1, K)
  Tensor bias{};              ///< (C) or undefined
  std::int64_t dilation = 1;  ///< D; D*(K - 1)/2 zeros at both ends: D*(K - 1) must be even
  ConvInputOptions input{};   ///< the activation of what it reads
};

/// x (N, C, L) or (C, L) -> x + scale*second(first(x)), the residual unit of HiFi-GAN:
///
///     pp::residual_unit(x, {w1, b1, 3, {pp::Activation::leaky_relu, 0.1}}, {w2, b2, 1, {pp::Activation::leaky_relu, 0.1}})
///
/// With snake and a second convolution of one tap it is that of DAC, Oobleck and their family, and with a depthwise first
/// convolution that of SNAC. It is conv1d(conv1d(x, first), second) with the residual x. On a GPU of compute capability 9.0 one
/// kernel computes it where that is faster, without the tensor between the convolutions in memory: for f16, bf16, and f32 with
/// Precision::fp32 or tf32, if the length is a multiple of 8, no gradients are recorded, the algorithm is automatic and there
/// is no AutocastGuard or LengthInvariantGuard. It has 32, 64 or 128 channels, with two snakes also 96 or 192 (not in fp32).
/// With a depthwise convolution it has 64 or 128 channels, two snakes, and a second convolution of one tap. It needs scale 1,
/// rounds where the steps round but for the second convolution's result, which it adds to x before (with a depthwise first one
/// in 16 bits after), and sums in another order. Throws the errors of conv1d(), and ShapeError if D*(K - 1) is odd or the
/// channels change.
[[nodiscard]] Tensor residual_unit(const Tensor& x, const UnitConv1d& first, const UnitConv1d& second, double scale = 1);

/// What the result y of residual_unit() is averaged with: average_of({other, y}, divisor, activation, slope).
struct AverageWith {
  Tensor other{};                            ///< of y's shape, dtype and device
  double divisor = 1;                        ///< 1: the sum
  Activation activation = Activation::none;  ///< none, relu or leaky_relu
  double slope = 0;                          ///< of leaky_relu, not negative
};

/// average_of({average.other, residual_unit(x, first, second, scale)}, ...), with its bits: the last unit of a branch adds its
/// result to that of the branches before. Where one kernel computes the unit it also does this, if the activation is none or
/// leaky_relu, the unit's activations are not snakes and the divisor is at most 64 and odd or a power of two. Throws their
/// errors.
[[nodiscard]] Tensor residual_unit(const Tensor& x, const UnitConv1d& first, const UnitConv1d& second, double scale,
                                   const AverageWith& average);

}  // namespace polyphase
