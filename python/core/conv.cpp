// The functions conv1d and conv_transpose1d, and the losses.

#include "ops/conv.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include "casters.hpp"
#include "core.hpp"

#include "layers/losses.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

ConvOutputOptions output_options(Activation activation, double slope, const Tensor* alpha, const Tensor* beta,
                                 const Tensor* residual, double scale) {
  return {activation, slope, or_undefined(alpha), or_undefined(beta), or_undefined(residual), scale};
}

}  // namespace

void bind_conv(nb::module_& module) {
  module.def(
      "conv_transpose1d",
      [](const Tensor& x, const Tensor& weight, const Tensor* bias, std::int64_t stride, Padding padding,
         std::int64_t output_padding, std::int64_t groups, std::int64_t dilation, std::optional<std::int64_t> output_size,
         Activation activation, double slope, const Tensor* alpha, const Tensor* beta, const Tensor* residual, double scale) {
        return conv_transpose1d(x, weight, or_undefined(bias), {stride, padding, output_padding, dilation, groups, output_size},
                                output_options(activation, slope, alpha, beta, residual, scale));
      },
      "x"_a, "weight"_a, "bias"_a.none() = nb::none(), "stride"_a = 1, "padding"_a = 0, "output_padding"_a = 0, "groups"_a = 1,
      "dilation"_a = 1, nb::kw_only(), "output_size"_a = nb::none(), "activation"_a = "none", "slope"_a = 0.01,
      "alpha"_a.none() = nb::none(), "beta"_a.none() = nb::none(), "residual"_a.none() = nb::none(), "scale"_a = 1.0, kUnlocked,
      R"(The transposed convolution, and what follows it in the same pass over memory.

x (N, C_in, L_in) or (C_in, L_in), weight (C_in, C_out/G, K), bias (C_out) -> (N, C_out, L_out) or (C_out, L_out) with
L_out = (L_in - 1)*stride - left - right + dilation*(K - 1) + output_padding + 1. padding is a number or (left, right);
output_padding < max(stride, dilation), or output_size requests L_out. Then residual + scale*activation(...), with activation
none, relu, leaky_relu (slope), tanh or snake (alpha, beta (C_out)). Differentiable.
Raises ShapeError, DTypeError, DeviceError, NotImplemented.)");
  module.def(
      "conv1d",
      [](const Tensor& x, const Tensor& weight, const Tensor* bias, std::int64_t stride, Padding padding, std::int64_t dilation,
         std::int64_t groups, PaddingMode padding_mode, Activation activation, double slope, const Tensor* alpha,
         const Tensor* beta, const Tensor* residual, double scale) {
        return conv1d(x, weight, or_undefined(bias), {stride, padding, dilation, groups, padding_mode},
                      output_options(activation, slope, alpha, beta, residual, scale));
      },
      "x"_a, "weight"_a, "bias"_a.none() = nb::none(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      nb::kw_only(), "padding_mode"_a = "zeros", "activation"_a = "none", "slope"_a = 0.01, "alpha"_a.none() = nb::none(),
      "beta"_a.none() = nb::none(), "residual"_a.none() = nb::none(), "scale"_a = 1.0, kUnlocked,
      R"(The convolution, and what follows it in the same pass over memory.

x (N, C_in, L_in) or (C_in, L_in), weight (C_out, C_in/G, K), bias (C_out) -> (N, C_out, L_out) or (C_out, L_out) with
L_out = floor((L_in + left + right - dilation*(K - 1) - 1)/stride) + 1. padding is a number, (left, right) or "same";
padding_mode zeros, reflect or replicate. What follows is as in conv_transpose1d. Differentiable.
Raises ShapeError, DTypeError, DeviceError, NotImplemented.)");
  module.def(
      "residual_unit",
      [](const Tensor& x, const Tensor& weight1, const Tensor* bias1, const Tensor& weight2, const Tensor* bias2,
         const std::pair<std::int64_t, std::int64_t>& dilation, Activation activation, double slope, double scale,
         const Tensor* alpha1, const Tensor* beta1, const Tensor* alpha2, const Tensor* beta2, const Tensor* other,
         double divisor) {
        const ConvInputOptions input1{activation, slope, or_undefined(alpha1), or_undefined(beta1)};
        const ConvInputOptions input2{activation, slope, or_undefined(alpha2), or_undefined(beta2)};
        const UnitConv1d first{weight1, or_undefined(bias1), dilation.first, input1};
        const UnitConv1d second{weight2, or_undefined(bias2), dilation.second, input2};
        if (other == nullptr) return residual_unit(x, first, second, scale);
        return residual_unit(x, first, second, scale, {*other, divisor});
      },
      "x"_a, "weight1"_a, "bias1"_a.none(), "weight2"_a, "bias2"_a.none(), nb::kw_only(), "dilation"_a = std::pair(1, 1),
      "activation"_a = "leaky_relu", "slope"_a = 0.01, "scale"_a = 1.0, "alpha1"_a.none() = nb::none(),
      "beta1"_a.none() = nb::none(), "alpha2"_a.none() = nb::none(), "beta2"_a.none() = nb::none(),
      "other"_a.none() = nb::none(), "divisor"_a = 1.0, kUnlocked,
      R"(y = x + scale*conv2(activation2(conv1(activation1(x)))), the residual unit of HiFi-GAN, or of DAC with snake; both
convolutions keep the length. With other, of y's shape: (other + y)/divisor, as the last unit of a branch adds the branches before.

x (N, C, L) or (C, L), weights (C, C, K) with an even dilation*(K - 1), biases (C) or None; dilation of the first and the
second; activation of both none, relu, leaky_relu (slope) or snake (alpha1, beta1 and alpha2, beta2 (C)). One kernel computes it
on GPUs of compute capability 9.0 in f32 (with snake and 96 or 192 channels only in tf32), f16 and bf16, with 32, 64 or 128
channels, with snake also 96 or 192, scale 1 and without gradients; it adds in another order than the steps and rounds the sum
once. Differentiable.
Raises ShapeError, DTypeError, DeviceError, Error.)");
}

void bind_losses(nb::module_& module) {
  module.def("mse_loss", &mse_loss, "input"_a, "target"_a, "reduction"_a = "mean", kUnlocked,
             "(input - target)^2; reduction mean, sum or none. Raises ShapeError unless both shapes are equal, DTypeError.");
  module.def("l1_loss", &l1_loss, "input"_a, "target"_a, "reduction"_a = "mean", kUnlocked,
             "|input - target|; the gradient is 0 where they are equal. Otherwise as mse_loss.");
  module.def("smooth_l1_loss", &smooth_l1_loss, "input"_a, "target"_a, "beta"_a = 1.0, "reduction"_a = "mean", kUnlocked,
             "d^2/(2*beta) if |d| < beta, else |d| - beta/2, with d = input - target. Otherwise as mse_loss.");
  module.def(
      "multi_resolution_stft_loss",
      [](const Tensor& input, const Tensor& target,
         const std::optional<std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>>& resolutions,
         double spectral_convergence_weight, double log_magnitude_weight, double epsilon) {
        MultiResolutionStftOptions options;
        options.spectral_convergence_weight = spectral_convergence_weight;
        options.log_magnitude_weight = log_magnitude_weight;
        options.epsilon = epsilon;
        if (resolutions) options.resolutions.clear();
        if (resolutions)
          for (const auto& [n_fft, hop_length, win_length] : *resolutions)
            options.resolutions.push_back({n_fft, hop_length, win_length});
        return multi_resolution_stft_loss(input, target, options);
      },
      "input"_a, "target"_a, "resolutions"_a = nb::none(), "spectral_convergence_weight"_a = 1.0,
      "log_magnitude_weight"_a = 1.0, "epsilon"_a = 1e-7, kUnlocked,
      R"(The mean over the resolutions of the weighted sum of spectral convergence and the mean distance of log magnitudes.

resolutions: tuples (n_fft, hop_length, win_length); None: Parallel WaveGAN's three. Input and target (..., L), f32 or f64.
Raises ShapeError unless both shapes are equal and every n_fft/2 is below L.)");
}

}  // namespace polyphase::python
