#include "layers/activations.hpp"

#include <cmath>

#include "autograd/no_grad.hpp"
#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/activations.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {

using layers::PointwiseStream;

namespace {

// BigVGAN's protection against a division by zero.
constexpr double kSnakeEpsilon = 1e-9;

/// The value of a parameter of Snake: exp(parameter) if it is a logarithm. Without recording a cached tensor.
Tensor snake_value(const Tensor& parameter, bool is_log) {
  if (!is_log) return parameter;
  return grad_enabled() ? exp(parameter) : ops::derived("exp", parameter, {{MapOp::exp}});
}
/// The value + kSnakeEpsilon. In f16 that is the value, whose neighbours are at least 6e-8 away.
Tensor protected_value(const Tensor& parameter, bool is_log) {
  const MapStep add{MapOp::affine, {1, kSnakeEpsilon}};
  if (grad_enabled()) return snake_value(parameter, is_log) + kSnakeEpsilon;
  if (parameter.dtype() == DType::f16) return snake_value(parameter, is_log);
  return is_log ? ops::derived("exp", parameter, {{MapOp::exp}, add}) : ops::derived("add", parameter, {add});
}

Tensor snake_parameter(const char* layer, std::int64_t channels, const SnakeOptions& options) {
  layers::require_at_least(layer, "channels", channels, 1);
  require<ShapeError>(std::isfinite(options.alpha) && options.alpha > 0, layer, ": expected alpha > 0, got ", options.alpha);
  layers::require_floating(layer, options.dtype);
  const double value = options.alpha_logscale ? std::log(options.alpha) : options.alpha;
  return Tensor::full({channels}, value, {.dtype = options.dtype, .device = options.device, .requires_grad = true});
}

std::unique_ptr<ModuleStream> snake_stream(Module& module) {
  return std::make_unique<PointwiseStream>(module, PointwiseStream::Options{.layout = ModuleStream::Layout::channels_first});
}

}  // namespace

std::unique_ptr<ModuleStream> PointwiseModule::make_stream() { return std::make_unique<PointwiseStream>(*this); }

std::unique_ptr<ModuleStream> GLU::make_stream() {
  const auto layout = layers::layout_of_channels(dim_);
  return layout ? std::make_unique<PointwiseStream>(*this, PointwiseStream::Options{.layout = *layout}) : Module::make_stream();
}

Tensor ReLU::forward(const Tensor& x) { return relu(x); }
Tensor LeakyReLU::forward(const Tensor& x) { return leaky_relu(x, negative_slope_); }
Tensor ELU::forward(const Tensor& x) { return elu(x, alpha_); }
Tensor GELU::forward(const Tensor& x) { return gelu(x, approximate_tanh_); }
Tensor GLU::forward(const Tensor& x) { return glu(x, dim_); }
Tensor SiLU::forward(const Tensor& x) { return silu(x); }
Tensor Tanh::forward(const Tensor& x) { return tanh(x); }
Tensor Sigmoid::forward(const Tensor& x) { return sigmoid(x); }

Clamp::Clamp(double low, double high) : low_(low), high_(high) {
  require<ShapeError>(low <= high, "Clamp: expected low <= high, got ", low, " and ", high);
}

Tensor Clamp::forward(const Tensor& x) { return clamp(x, low_, high_); }

Snake::Snake(std::int64_t channels, const SnakeOptions& options)
    : alpha_(snake_parameter("Snake", channels, options)), logscale_(options.alpha_logscale) {}

ConvOutputOptions Snake::output_options() const {
  return {.activation = Activation::snake, .alpha = snake_value(alpha_, logscale_), .beta = protected_value(alpha_, logscale_)};
}

std::unique_ptr<ModuleStream> Snake::make_stream() { return snake_stream(*this); }

Tensor Snake::forward(const Tensor& x) {
  const ConvOutputOptions of = output_options();
  return snake_beta(x, of.alpha, of.beta);
}

SnakeBeta::SnakeBeta(std::int64_t channels, const SnakeOptions& options)
    : alpha_(snake_parameter("SnakeBeta", channels, options)),
      beta_(snake_parameter("SnakeBeta", channels, options)),
      logscale_(options.alpha_logscale) {}

ConvOutputOptions SnakeBeta::output_options() const {
  return {.activation = Activation::snake, .alpha = snake_value(alpha_, logscale_), .beta = protected_value(beta_, logscale_)};
}

std::unique_ptr<ModuleStream> SnakeBeta::make_stream() { return snake_stream(*this); }

Tensor SnakeBeta::forward(const Tensor& x) {
  const ConvOutputOptions of = output_options();
  return snake_beta(x, of.alpha, of.beta);
}

}  // namespace polyphase
