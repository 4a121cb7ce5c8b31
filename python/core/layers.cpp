// The layers. Names, defaults and the order of arguments are PyTorch's, but for dtype and device.

#include "casters.hpp"
#include "core.hpp"
#include "layers/activations.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/dropout.hpp"
#include "layers/embedding.hpp"
#include "layers/linear.hpp"
#include "layers/lstm.hpp"
#include "layers/norm.hpp"
#include "layers/spectral/istft.hpp"
#include "layers/spectral/mel_spectrogram.hpp"
#include "layers/upsample.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

void bind_convolutions(nb::module_& module) {
  nb::class_<ConvTranspose1d, WeightedLayer>(module, "ConvTranspose1d", R"(The transposed convolution: learned upsampling.

(N, C_in, L_in) or (C_in, L_in) -> (N, C_out, L_out) or (C_out, L_out), with
L_out = (L_in - 1)*stride - left - right + dilation*(kernel_size - 1) + output_padding + 1.
padding is a number or (left, right). Parameters: weight (C_in, C_out/G, K), bias (C_out), PyTorch's names and initialisation.
Raises ShapeError naming the option that is out of range, DTypeError.)")
      .def(
          "__init__",
          [](ConvTranspose1d* self, std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
             std::int64_t stride, Padding padding, std::int64_t output_padding, std::int64_t groups, bool bias,
             std::int64_t dilation, DType dtype, DeviceArg device) {
            new (self) ConvTranspose1d({in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias,
                                        dilation, dtype, device.device});
          },
          "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a = 1, "padding"_a = 0, "output_padding"_a = 0,
          "groups"_a = 1, "bias"_a = true, "dilation"_a = 1, "dtype"_a = "f32", "device"_a = nb::none())
      .def(
          "forward",
          [](ConvTranspose1d& self, const Tensor& x, std::optional<std::int64_t> output_size) {
            return output_size ? self(x, *output_size) : self.forward(x);
          },
          "x"_a, "output_size"_a = nb::none(), kUnlocked,
          "output_size requests this L_out; the layer's own output padding must be 0 then. Raises the errors of "
          "conv_transpose1d().");
  nb::class_<Conv1d, WeightedLayer>(module, "Conv1d", R"(A strided correlation along the length.

(N, C_in, L_in) or (C_in, L_in) -> (N, C_out, L_out) or (C_out, L_out), with
L_out = floor((L_in + left + right - dilation*(kernel_size - 1) - 1)/stride) + 1.
padding is a number, (left, right) or "same"; padding_mode zeros, reflect or replicate. Parameters: weight (C_out, C_in/G, K), bias
(C_out), PyTorch's names and initialisation. Raises ShapeError naming the option that is out of range, DTypeError.)")
      .def(
          "__init__",
          [](Conv1d* self, std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, std::int64_t stride,
             Padding padding, std::int64_t dilation, std::int64_t groups, bool bias, PaddingMode padding_mode, DType dtype,
             DeviceArg device) {
            new (self) Conv1d({in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
                               dtype, device.device});
          },
          "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
          "bias"_a = true, "padding_mode"_a = "zeros", "dtype"_a = "f32", "device"_a = nb::none());
  nb::class_<Linear, WeightedLayer>(module, "Linear",
                                    "(..., in_features) -> (..., out_features). Parameters: weight (out, in), bias (out).")
      .def(
          "__init__",
          [](Linear* self, std::int64_t in_features, std::int64_t out_features, bool bias, DType dtype, DeviceArg device) {
            new (self) Linear({in_features, out_features, bias, dtype, device.device});
          },
          "in_features"_a, "out_features"_a, "bias"_a = true, "dtype"_a = "f32", "device"_a = nb::none());
}

template <class Layer>
void bind_snake(nb::module_& module, const char* name, const char* doc) {
  nb::class_<Layer, Module>(module, name, doc)
      .def(
          "__init__",
          [](Layer* self, std::int64_t channels, double alpha, bool alpha_logscale, DType dtype, DeviceArg device) {
            new (self) Layer(channels, {alpha, alpha_logscale, dtype, device.device});
          },
          "channels"_a, "alpha"_a = 1.0, "alpha_logscale"_a = false, "dtype"_a = "f32", "device"_a = nb::none());
}

void bind_activation_modules(nb::module_& module) {
  nb::class_<ReLU, Module>(module, "ReLU", "max(x, 0).").def(nb::init<>());
  nb::class_<LeakyReLU, Module>(module, "LeakyReLU", "x where x > 0, else negative_slope*x.")
      .def(nb::init<double>(), "negative_slope"_a = 0.01);
  nb::class_<ELU, Module>(module, "ELU", "x where x > 0, else alpha*(exp(x) - 1).").def(nb::init<double>(), "alpha"_a = 1.0);
  nb::class_<GELU, Module>(module, "GELU", "x*Phi(x), exact or PyTorch's approximate='tanh'.")
      .def(nb::init<bool>(), "approximate_tanh"_a = false);
  nb::class_<GLU, Module>(module, "GLU", "a*sigmoid(b) of the two halves along dim.").def(nb::init<int>(), "dim"_a = -1);
  nb::class_<SiLU, Module>(module, "SiLU", "x*sigmoid(x).").def(nb::init<>());
  nb::class_<Tanh, Module>(module, "Tanh", "The hyperbolic tangent.").def(nb::init<>());
  nb::class_<Sigmoid, Module>(module, "Sigmoid", "1/(1 + exp(-x)).").def(nb::init<>());
  nb::class_<Clamp, Module>(module, "Clamp", "Limits values to [low, high]. Raises ShapeError unless low <= high.")
      .def(nb::init<double, double>(), "low"_a, "high"_a);
  nb::class_<Dropout, Module>(module, "Dropout",
                              "In training zeroes elements with probability p and scales the rest by 1/(1-p).")
      .def(nb::init<double>(), "p"_a = 0.5);
  bind_snake<Snake>(module, "Snake", "x + sin(alpha*x)^2/alpha; x (N, C, L) or (C, L). Parameter: alpha (C).");
  bind_snake<SnakeBeta>(module, "SnakeBeta", "x + sin(alpha*x)^2/beta; x (N, C, L) or (C, L). Parameters: alpha, beta (C).");
}

void bind_norm_modules(nb::module_& module) {
  nb::class_<GroupNorm, Module>(module, "GroupNorm",
                                "Each group of channels of a sample of x (N, C, ...) to mean 0 and variance 1.")
      .def(
          "__init__",
          [](GroupNorm* self, std::int64_t num_groups, std::int64_t num_channels, double epsilon, bool affine, DType dtype,
             DeviceArg device) {
            new (self) GroupNorm({num_groups, num_channels, epsilon, affine, dtype, device.device});
          },
          "num_groups"_a, "num_channels"_a, "epsilon"_a = 1e-5, "affine"_a = true, "dtype"_a = "f32", "device"_a = nb::none());
  nb::class_<LayerNorm, Module>(module, "LayerNorm", "The last dimension of x (..., C) to mean 0 and variance 1.")
      .def(
          "__init__",
          [](LayerNorm* self, std::int64_t normalized_shape, double epsilon, bool elementwise_affine, bool bias, DType dtype,
             DeviceArg device) {
            new (self) LayerNorm({normalized_shape, epsilon, elementwise_affine, bias, dtype, device.device});
          },
          "normalized_shape"_a, "epsilon"_a = 1e-5, "elementwise_affine"_a = true, "bias"_a = true, "dtype"_a = "f32",
          "device"_a = nb::none());
  nb::class_<RMSNorm, Module>(module, "RMSNorm", "The last dimension of x (..., C) to a mean square of 1.")
      .def(
          "__init__",
          [](RMSNorm* self, std::int64_t normalized_shape, std::optional<double> epsilon, bool elementwise_affine, DType dtype,
             DeviceArg device) {
            new (self) RMSNorm({normalized_shape, epsilon, elementwise_affine, dtype, device.device});
          },
          "normalized_shape"_a, "epsilon"_a = nb::none(), "elementwise_affine"_a = true, "dtype"_a = "f32",
          "device"_a = nb::none());
  nb::class_<LayerScale, Module>(module, "LayerScale", "x times one learned number per channel of dimension dim.")
      .def(
          "__init__",
          [](LayerScale* self, std::int64_t channels, double init, int dim, DType dtype, DeviceArg device,
             const std::string& name) {
            new (self) LayerScale({channels, init, dim, dtype, device.device, name});
          },
          "channels"_a, "init"_a = 1e-4, "dim"_a = -1, "dtype"_a = "f32", "device"_a = nb::none(), "name"_a = "gamma");
  nb::class_<BatchNorm1d, Module>(module, "BatchNorm1d",
                                  "Each channel of x (N, C) or (N, C, L) to mean 0 and variance 1, with running statistics.")
      .def(
          "__init__",
          [](BatchNorm1d* self, std::int64_t num_features, double epsilon, std::optional<double> momentum, bool affine,
             bool track_running_stats, DType dtype, DeviceArg device) {
            new (self) BatchNorm1d({num_features, epsilon, momentum, affine, track_running_stats, dtype, device.device});
          },
          "num_features"_a, "epsilon"_a = 1e-5, "momentum"_a.none() = 0.1, "affine"_a = true, "track_running_stats"_a = true,
          "dtype"_a = "f32", "device"_a = nb::none());
}

void bind_other_layers(nb::module_& module) {
  nb::class_<Embedding, Module>(module, "Embedding", "index (...) i64 -> (..., embedding_dim). Parameter: weight (V, D).")
      .def(
          "__init__",
          [](Embedding* self, std::int64_t num_embeddings, std::int64_t embedding_dim, DType dtype, DeviceArg device) {
            new (self) Embedding({num_embeddings, embedding_dim, dtype, device.device});
          },
          "num_embeddings"_a, "embedding_dim"_a, "dtype"_a = "f32", "device"_a = nb::none());
  nb::class_<LSTM, Module>(module, "LSTM", "(N, L, input_size) -> (N, L, hidden_size): PyTorch's with batch_first=True.")
      .def(
          "__init__",
          [](LSTM* self, std::int64_t input_size, std::int64_t hidden_size, std::int64_t num_layers, bool bias, DType dtype,
             DeviceArg device) {
            new (self) LSTM({input_size, hidden_size, num_layers, bias, dtype, device.device});
          },
          "input_size"_a, "hidden_size"_a, "num_layers"_a = 1, "bias"_a = true, "dtype"_a = "f32", "device"_a = nb::none());
  nb::class_<Upsample, Module>(module, "Upsample", "(..., L) -> (..., L*scale_factor), mode nearest or linear.")
      .def(
          "__init__",
          [](Upsample* self, std::int64_t scale_factor, UpsampleMode mode) {
            new (self) Upsample({scale_factor, mode});
          },
          "scale_factor"_a, "mode"_a = "nearest");
  nb::class_<PixelShuffle1d, Module>(module, "PixelShuffle1d", "(N, C*r, L) -> (N, C, L*r).")
      .def(nb::init<std::int64_t>(), "upscale_factor"_a);
  nb::class_<ISTFT, Module>(module, "ISTFT", "(N, n_fft + 2, frames) -> (N, 1, samples): real parts, then imaginary parts.")
      .def(
          "__init__",
          [](ISTFT* self, std::int64_t n_fft, std::int64_t hop_length, std::int64_t win_length, IstftPadding padding,
             DType dtype, DeviceArg device) {
            new (self) ISTFT({n_fft, hop_length, win_length, padding, dtype, device.device});
          },
          "n_fft"_a = 1024, "hop_length"_a = 256, "win_length"_a = 0, "padding"_a = "center", "dtype"_a = "f32",
          "device"_a = nb::none());
  nb::class_<MelSpectrogram, Module>(module, "MelSpectrogram",
                                     R"((..., L) -> (..., n_mels, frames): the logarithm of a mel spectrogram.

The defaults are HiFi-GAN's and BigVGAN's. f_max 0: half the sample rate; padding same or center; win_length 0: n_fft.
Raises ShapeError.)")
      .def(
          "__init__",
          [](MelSpectrogram* self, std::int64_t sample_rate, std::int64_t n_fft, std::int64_t n_mels, double f_min,
             double f_max, MelScale scale, bool is_normalized, std::int64_t hop_length, std::int64_t win_length,
             IstftPadding padding, double power_floor, double clip, DType dtype, DeviceArg device) {
            const auto place =
                padding == IstftPadding::center ? MelSpectrogram::Padding::center : MelSpectrogram::Padding::same;
            new (self) MelSpectrogram({{sample_rate, n_fft, n_mels, f_min, f_max, scale, is_normalized},
                                       hop_length,
                                       win_length,
                                       place,
                                       power_floor,
                                       clip,
                                       dtype,
                                       device.device});
          },
          "sample_rate"_a = 22050, "n_fft"_a = 1024, "n_mels"_a = 80, "f_min"_a = 0.0, "f_max"_a = 0.0, "scale"_a = "slaney",
          "is_normalized"_a = true, "hop_length"_a = 256, "win_length"_a = 0, "padding"_a = "same", "power_floor"_a = 1e-9,
          "clip"_a = 1e-5, "dtype"_a = "f32", "device"_a = nb::none());
}

}  // namespace

void bind_layers(nb::module_& module) {
  bind_convolutions(module);
  bind_activation_modules(module);
  bind_norm_modules(module);
  bind_other_layers(module);
}

}  // namespace polyphase::python
