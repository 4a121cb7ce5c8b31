#include "layers/antialiased_activation.hpp"

#include <optional>
#include <typeinfo>

#include "layers/activations.hpp"
#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/antialias.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kTaps = 12;
constexpr std::int64_t kReach = 5;  // inputs before and after its own that an output depends on

Tensor half_band_filter(const AntialiasedActivation::Options& options) {
  return kaiser_sinc_filter(0.25, 0.3, kTaps, {.dtype = options.dtype, .device = options.device}).reshape({1, 1, kTaps});
}

// The function of a Snake or SnakeBeta. Nothing for other modules, including classes derived from these, which may compute
// something else.
std::optional<ConvOutputOptions> snake_of(const Module& module) {
  if (typeid(module) == typeid(Snake)) return static_cast<const Snake&>(module).output_options();
  if (typeid(module) == typeid(SnakeBeta)) return static_cast<const SnakeBeta&>(module).output_options();
  return std::nullopt;
}

}  // namespace

AntialiasedActivation::AntialiasedActivation(std::shared_ptr<Module> activation, const Options& options)
    : activation_(std::move(activation)) {
  layers::require_floating("AntialiasedActivation", options.dtype);
  require<Error>(activation_ != nullptr, "AntialiasedActivation: the activation is null");
  up_ = half_band_filter(options);
  down_ = half_band_filter(options);
}

void AntialiasedActivation::visit(Visitor& visitor) {
  visitor.module("act", *activation_);
  visitor.buffer("upsample.filter", up_);
  visitor.buffer("downsample.lowpass.filter", down_);
}

Tensor AntialiasedActivation::forward(const Tensor& x) {
  if (const auto snake = snake_of(*activation_)) return antialias_snake(x, snake->alpha, snake->beta, up_, down_);
  return antialias(
      x, [this](const Tensor& y) { return activation_->forward(y); }, up_, down_);
}

std::unique_ptr<ModuleStream> AntialiasedActivation::make_stream() {
  const auto stream = activation_->make_stream();
  static_cast<void>(layers::joined(ModuleStream::Layout::channels_first, *stream, *activation_));
  const Span own = stream->inputs_of({0, 0});
  require<NotImplemented>(own.first == 0 && own.last == 0 && stream->rate().up == stream->rate().down,
                          "stream: expected an AntialiasedActivation of a pointwise module, got ",
                          layers::type_name(*activation_));
  return std::make_unique<layers::NeighbourStream>(*this, layers::NeighbourStream::Options{.left = kReach, .right = kReach});
}

}  // namespace polyphase
