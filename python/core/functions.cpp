// Differentiable functions: elementwise, activations, reductions, lengths, products, normalisations, spectra.

#include <nanobind/stl/tuple.h>

#include "casters.hpp"
#include "core.hpp"
#include "ops/activations.hpp"
#include "ops/antialias.hpp"
#include "ops/argmin.hpp"
#include "ops/attention.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/linear_fused.hpp"
#include "ops/lstm.hpp"
#include "ops/norm.hpp"
#include "ops/reduce.hpp"
#include "ops/softmax.hpp"
#include "ops/spectral.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);

void unary(nb::module_& module, const char* name, Unary function, const char* doc) {
  module.def(name, function, "x"_a, kUnlocked, doc);
}
void binary(nb::module_& module, const char* name, Binary function, const char* doc) {
  module.def(name, function, "a"_a, "b"_a, kUnlocked, doc);
}

void bind_elementwise(nb::module_& module) {
  binary(module, "add", static_cast<Binary>(&add), "a + b, broadcast. Raises ShapeError, DTypeError, DeviceError.");
  binary(module, "sub", &sub, "a - b, broadcast.");
  binary(module, "mul", static_cast<Binary>(&mul), "a * b, broadcast.");
  binary(module, "div", &div, "a / b, broadcast.");
  module.def("add_scaled", &add_scaled, "a"_a, "b"_a, "scale"_a, kUnlocked, "a + scale*b in one pass.");
  module.def("addcmul", &addcmul, "a"_a, "b"_a, "c"_a, kUnlocked, "a + b*c in one pass, rounded once.");
  unary(module, "abs", &polyphase::abs, "|x|; the gradient is 0 at 0.");
  unary(module, "square", &square, "x*x.");
  unary(module, "sqrt", &polyphase::sqrt, "The square root.");
  unary(module, "rsqrt", &rsqrt, "1/sqrt(x).");
  unary(module, "reciprocal", &reciprocal, "1/x.");
  unary(module, "exp", &polyphase::exp, "e^x.");
  unary(module, "log", &polyphase::log, "The natural logarithm.");
  unary(module, "sin", &polyphase::sin, "The sine.");
  unary(module, "cos", &polyphase::cos, "The cosine.");
  module.def("pow", &polyphase::pow, "x"_a, "exponent"_a, kUnlocked, "x^exponent.");
  module.def("clamp", &polyphase::clamp, "x"_a, "low"_a, "high"_a, kUnlocked, "Limits values to [low, high].");
  binary(module, "maximum", &maximum, "The larger operand; its gradient, half to each where equal.");
  binary(module, "minimum", &minimum, "The smaller operand; its gradient, half to each where equal.");
  module.def("where", &where, "condition"_a, "a"_a, "b"_a, kUnlocked, "a where condition is not 0, else b; all broadcast.");
  binary(module, "greater", &greater, "1 where a > b, else 0, in the operands' dtype. Not differentiable.");
  binary(module, "greater_equal", &greater_equal, "1 where a >= b, else 0.");
  binary(module, "less", &less, "1 where a < b, else 0.");
  binary(module, "less_equal", &less_equal, "1 where a <= b, else 0.");
  binary(module, "equal", &equal, "1 where a == b, else 0.");
  module.def("allclose", &allclose, "a"_a, "b"_a, "relative"_a = 1e-5, "absolute"_a = 1e-8, kUnlocked,
             "Whether |a - b| <= absolute + relative*|b| everywhere. Waits for the device.");
}

void bind_activations(nb::module_& module) {
  unary(module, "relu", &relu, "max(x, 0).");
  module.def("leaky_relu", &leaky_relu, "x"_a, "negative_slope"_a = 0.01, kUnlocked, "x where x > 0, else negative_slope*x.");
  module.def("elu", &elu, "x"_a, "alpha"_a = 1.0, kUnlocked, "x where x > 0, else alpha*(exp(x) - 1).");
  module.def("gelu", &gelu, "x"_a, "approximate_tanh"_a = false, kUnlocked, "x*Phi(x), exact or PyTorch's approximate='tanh'.");
  unary(module, "silu", &silu, "x*sigmoid(x).");
  unary(module, "tanh", &polyphase::tanh, "The hyperbolic tangent.");
  unary(module, "sigmoid", &sigmoid, "1/(1 + exp(-x)).");
  unary(module, "softplus", &softplus, "log(1 + exp(x)).");
  module.def("glu", &glu, "x"_a, "dim"_a = -1, kUnlocked,
             "a*sigmoid(b) of the halves a, b along dim. Raises ShapeError if its size is odd.");
  module.def("snake", &snake, "x"_a, "alpha"_a, kUnlocked, "x + sin(alpha*x)^2/alpha; x (N, C, L) or (C, L), alpha (C).");
  module.def("snake_beta", &snake_beta, "x"_a, "alpha"_a, "beta"_a, kUnlocked,
             "x + sin(alpha*x)^2/beta; x (N, C, L) or (C, L), alpha and beta (C).");
  module.def("dropout", &dropout, "x"_a, "p"_a = 0.5, "training"_a = true, kUnlocked,
             "Zeroes elements with probability p and scales the rest by 1/(1-p); x itself if not training.");
  module.def("softmax", &softmax, "x"_a, "dim"_a = -1, kUnlocked, "exp(x)/sum(exp(x)) over dim.");
  module.def("log_softmax", &log_softmax, "x"_a, "dim"_a = -1, kUnlocked, "x - log(sum(exp(x))) over dim.");
}

/// A reduction over all dimensions, or over some.
template <class All, class Some>
void reduction(nb::module_& module, const char* name, All all, Some some, const char* doc) {
  module.def(name, all, "x"_a, kUnlocked, doc);
  module.def(
      name, [some](const Tensor& x, const Dims& dims, bool keepdim) { return some(x, dims.values, keepdim); }, "x"_a, "dims"_a,
      "keepdim"_a = false, kUnlocked, "Over `dims`, which stay with size 1 if keepdim.");
}

void bind_reductions(nb::module_& module) {
  using Some = Tensor (*)(const Tensor&, const std::vector<int>&, bool);
  reduction(module, "sum", static_cast<Unary>(&sum), static_cast<Some>(&sum), "The sum over all dimensions: ().");
  reduction(module, "mean", static_cast<Unary>(&mean), static_cast<Some>(&mean), "The mean over all dimensions: ().");
  reduction(module, "norm", static_cast<Unary>(&norm), static_cast<Some>(&norm),
            "sqrt(sum of squares) over all dimensions: ().");
  module.def(
      "var",
      [](const Tensor& x, const Dims& dims, bool keepdim, std::int64_t correction) {
        return var(x, dims.values, keepdim, correction);
      },
      "x"_a, "dims"_a, "keepdim"_a = false, "correction"_a = 1, kUnlocked,
      "The variance over `dims` with divisor n - correction.");
  unary(module, "max", &polyphase::max, "The largest element: (). Not differentiable. Raises ShapeError on an empty tensor.");
  unary(module, "min", &polyphase::min, "The smallest element: (). Not differentiable. Raises ShapeError on an empty tensor.");
  module.def("argmax", &argmax, "x"_a, "dim"_a, kUnlocked,
             "The position, i64, of the largest element along dim, which goes away.");
  module.def("argmin", &argmin, "x"_a, "dim"_a, kUnlocked,
             "The position, i64, of the smallest element along dim, which goes away.");
  module.def("sum_to", &sum_to, "x"_a, "shape"_a, kUnlocked, "Sums x down to a shape that broadcasts to x's.");
}

void bind_length(nb::module_& module) {
  module.def("pad1d", &pad1d, "x"_a, "padding"_a, "mode"_a = "zeros", kUnlocked,
             "Pads the last dimension; padding n or (left, right), mode zeros, reflect or replicate. Raises ShapeError.");
  module.def("upsample1d", &upsample1d, "x"_a, "scale"_a, "mode"_a = "nearest", kUnlocked,
             "(..., L) -> (..., L*scale), nearest or linear (align_corners=False).");
  module.def("pixel_shuffle1d", &pixel_shuffle1d, "x"_a, "upscale_factor"_a, kUnlocked, "(N, C*r, L) -> (N, C, L*r).");
  module.def("index_select", &index_select, "x"_a, "index"_a, kUnlocked,
             "Positions of the last dimension: index (J) i64 -> (..., J). Raises ShapeError for one out of range.");
  module.def("cat", &cat, "tensors"_a, "dim"_a = 0, kUnlocked,
             "Joins tensors along an existing dimension; all other sizes are equal.");
  module.def("stack", &stack, "tensors"_a, "dim"_a = 0, kUnlocked, "Joins tensors of one shape along a new dimension.");
}

void bind_products(nb::module_& module) {
  module.def("matmul", &matmul, "a"_a, "b"_a, kUnlocked,
             "(..., M, K) x (..., K, N) -> (..., M, N); leading dimensions broadcast.");
  module.def(
      "linear", [](const Tensor& x, const Tensor& weight, const Tensor* bias) { return linear(x, weight, or_undefined(bias)); },
      "x"_a, "weight"_a, "bias"_a.none() = nb::none(), kUnlocked, "x (..., in) -> x w^T + b (..., out); w (out, in), b (out).");
  module.def("embedding", &embedding, "index"_a, "weight"_a, kUnlocked,
             "index (...) i64, weight (V, D) -> (..., D). Raises ShapeError for an index out of range.");
  module.def("nearest_code", &nearest_code, "x"_a, "codebook"_a, kUnlocked,
             "x (..., D), codebook (V, D) -> (...) i64: the row with the smallest squared distance. Not differentiable.");
  module.def("straight_through", &straight_through, "x"_a, "value"_a, kUnlocked,
             "`value` forward, the gradient goes to x as it is.");
  module.def(
      "lstm",
      [](const Tensor& x, const Tensor& weight_ih, const Tensor& weight_hh, const Tensor* bias_ih, const Tensor* bias_hh,
         const Tensor* hidden, const Tensor* cell) {
        const LstmResult result = lstm(x, {weight_ih, weight_hh, or_undefined(bias_ih), or_undefined(bias_hh)},
                                       {or_undefined(hidden), or_undefined(cell)});
        return std::vector<Tensor>{result.y, result.state.hidden, result.state.cell};
      },
      "x"_a, "weight_ih"_a, "weight_hh"_a, "bias_ih"_a.none() = nb::none(), "bias_hh"_a.none() = nb::none(),
      "hidden"_a.none() = nb::none(), "cell"_a.none() = nb::none(), kUnlocked,
      "One LSTM layer over x (N, L, C): [y (N, L, H), hidden (N, H), cell (N, H)]. weight_ih (4H, C), weight_hh (4H, H), gates "
      "i, f, g, o.");
  using Weights = std::tuple<Tensor, Tensor, std::optional<Tensor>, std::optional<Tensor>>;
  module.def(
      "lstm_stack",
      [](const Tensor& x, const std::vector<Weights>& layers, const std::vector<std::pair<Tensor, Tensor>>& states) {
        std::vector<LstmWeights> weights;
        for (const auto& [weight_ih, weight_hh, bias_ih, bias_hh] : layers)
          weights.push_back({weight_ih, weight_hh, bias_ih.value_or(Tensor()), bias_hh.value_or(Tensor())});
        std::vector<LstmState> before;
        for (const auto& [hidden, cell] : states) before.push_back({hidden, cell});
        const LstmStackResult result = lstm_stack(x, weights, before);
        std::vector<std::pair<Tensor, Tensor>> after;
        for (const LstmState& state : result.states) after.emplace_back(state.hidden, state.cell);
        return std::pair(result.y, after);
      },
      "x"_a, "layers"_a, "states"_a = std::vector<std::pair<Tensor, Tensor>>(), kUnlocked,
      "LSTM layers one after another, each (weight_ih, weight_hh, bias_ih or None, bias_hh or None): (y, [(hidden, cell), "
      "...]). "
      "As lstm layer by layer; a GPU computes two layers of one H, at most 512, in the time of one. states: as returned, or "
      "empty for zeros.");
  module.def(
      "linear_fused",
      [](const Tensor& x, const Tensor& weight, const Tensor* bias, std::optional<double> norm_epsilon,
         const Tensor* norm_weight, const Tensor* norm_bias, bool gelu, const Tensor* scale, const Tensor* residual) {
        return linear_fused(x, weight, or_undefined(bias),
                            {norm_epsilon, or_undefined(norm_weight), or_undefined(norm_bias), gelu, or_undefined(scale),
                             or_undefined(residual)});
      },
      "x"_a, "weight"_a, "bias"_a.none() = nb::none(), nb::kw_only(), "norm_epsilon"_a = nb::none(),
      "norm_weight"_a.none() = nb::none(), "norm_bias"_a.none() = nb::none(), "gelu"_a = false, "scale"_a.none() = nb::none(),
      "residual"_a.none() = nb::none(), kUnlocked,
      "residual + scale*gelu(linear(layer_norm(x), weight, bias)), without what is not given; norm_epsilon asks for the norm. "
      "On a "
      "GPU up to 8 rows are one kernel while no gradients are recorded. Differentiable.");
  module.def(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, bool causal, std::int64_t window, std::optional<double> scale) {
        return scaled_dot_product_attention(q, k, v, {.causal = causal, .window = window, .scale = scale});
      },
      "q"_a, "k"_a, "v"_a, "causal"_a = false, "window"_a = 0, "scale"_a = nb::none(), kUnlocked,
      "q (N, H, Lq, D), k (N, H, Lk, D), v (N, H, Lk, E) -> (N, H, Lq, E). causal: query i sees keys up to i + Lk - Lq; "
      "window: the last so many.");
  module.def(
      "rope",
      [](const Tensor& x, double base, bool interleaved, std::int64_t offset) {
        return rope(x, {.base = base, .interleaved = interleaved, .offset = offset});
      },
      "x"_a, "base"_a = 10000.0, "interleaved"_a = false, "offset"_a = 0, kUnlocked,
      "Rotary position embedding of x (..., L, D), D even; the first position is `offset`.");
}

void bind_norms(nb::module_& module) {
  module.def(
      "group_norm",
      [](const Tensor& x, std::int64_t groups, const Tensor* weight, const Tensor* bias, double epsilon) {
        return group_norm(x, groups, or_undefined(weight), or_undefined(bias), epsilon);
      },
      "x"_a, "groups"_a, "weight"_a.none() = nb::none(), "bias"_a.none() = nb::none(), "epsilon"_a = 1e-5, kUnlocked,
      "x (N, C, ...): each group of channels of a sample to mean 0 and variance 1, then weight (C) and bias (C).");
  module.def(
      "layer_norm",
      [](const Tensor& x, const Tensor* weight, const Tensor* bias, double epsilon, int dim) {
        return layer_norm(x, or_undefined(weight), or_undefined(bias), epsilon, dim);
      },
      "x"_a, "weight"_a.none() = nb::none(), "bias"_a.none() = nb::none(), "epsilon"_a = 1e-5, "dim"_a = -1, kUnlocked,
      "The channels of x, dimension `dim`, to mean 0 and variance 1, then weight (C) and bias (C). 1 is for x (N, C, L).");
  module.def(
      "rms_norm",
      [](const Tensor& x, const Tensor* weight, std::optional<double> epsilon) {
        return rms_norm(x, or_undefined(weight), epsilon);
      },
      "x"_a, "weight"_a.none() = nb::none(), "epsilon"_a = nb::none(), kUnlocked,
      "The last dimension of x (..., C) to a mean square of 1, then weight (C). epsilon: the dtype's, f32's for 16 bits.");
}

void bind_spectral(nb::module_& module) {
  module.def(
      "hann_window",
      [](std::int64_t length, DType dtype, DeviceArg device) {
        return hann_window(length, {.dtype = dtype, .device = device.device});
      },
      "length"_a, "dtype"_a = "f32", "device"_a = nb::none(), kUnlocked, "The periodic Hann window.");
  unary(module, "rfft", &rfft,
        "Real DFT: (..., n) -> (..., n/2 + 1, 2), n even; the last dimension is real and imaginary part.");
  unary(module, "irfft", &irfft, "The inverse of rfft(): (..., n/2 + 1, 2) -> (..., n).");
  module.def("overlap_add", &overlap_add, "frames"_a, "step"_a, kUnlocked,
             "(..., frames, size) -> (..., (frames - 1)*step + size): the adjoint of unfold.");
  module.def(
      "stft",
      [](const Tensor& x, std::int64_t n_fft, std::int64_t hop_length, std::int64_t win_length, bool center,
         const Tensor* window) {
        return stft(x, {n_fft, hop_length, win_length, center}, or_undefined(window));
      },
      "x"_a, "n_fft"_a = 1024, "hop_length"_a = 256, "win_length"_a = 1024, "center"_a = true, "window"_a.none() = nb::none(),
      kUnlocked, "x (..., L) -> (..., frames, n_fft/2 + 1, 2). window (win_length), Hann's unless given. Raises ShapeError.");
  module.def(
      "istft",
      [](const Tensor& spectrum, std::int64_t n_fft, std::int64_t hop_length, std::int64_t win_length, IstftPadding padding,
         const Tensor* window) {
        return istft(spectrum, {n_fft, hop_length, win_length, padding}, or_undefined(window));
      },
      "spectrum"_a, "n_fft"_a = 1024, "hop_length"_a = 256, "win_length"_a = 1024, "padding"_a = "center",
      "window"_a.none() = nb::none(), kUnlocked,
      "(..., frames, n_fft/2 + 1, 2) -> (..., samples): (frames - 1)*hop_length (center) or frames*hop_length (same).");
  module.def(
      "power_spectrogram",
      [](const Tensor& x, std::int64_t n_fft, std::int64_t hop_length, std::int64_t win_length, bool center) {
        return power_spectrogram(x, {n_fft, hop_length, win_length, center});
      },
      "x"_a, "n_fft"_a = 1024, "hop_length"_a = 256, "win_length"_a = 1024, "center"_a = true, kUnlocked,
      "|STFT|^2 with a Hann window: (..., L) -> (..., frames, n_fft/2 + 1).");
  module.def(
      "kaiser_sinc_filter",
      [](double cutoff, double half_width, std::int64_t kernel_size, DType dtype, DeviceArg device) {
        return kaiser_sinc_filter(cutoff, half_width, kernel_size, {.dtype = dtype, .device = device.device});
      },
      "cutoff"_a, "half_width"_a, "kernel_size"_a, "dtype"_a = "f32", "device"_a = nb::none(), kUnlocked,
      "A low-pass of kernel_size taps that sum to 1; cutoff and half the transition's width in cycles per sample.");
  module.def("antialias_up2", &antialias_up2, "x"_a, "filter"_a, kUnlocked, "(..., L) -> (..., 2L) by a filter (K), K even.");
  module.def("antialias_down2", &antialias_down2, "x"_a, "filter"_a, kUnlocked,
             "(..., L) -> (..., ceil(L/2)) by a filter (K), K even.");
  module.def("antialias_snake", &antialias_snake, "x"_a, "alpha"_a, "beta"_a, "up"_a, "down"_a, kUnlocked,
             "snake_beta at twice the sampling rate, in one pass: x (N, C, L), alpha and beta (C), filters up and down (12).");
}

}  // namespace

void bind_functions(nb::module_& module) {
  bind_elementwise(module);
  bind_activations(module);
  bind_reductions(module);
  bind_length(module);
  bind_products(module);
  bind_norms(module);
  bind_spectral(module);
}

}  // namespace polyphase::python
