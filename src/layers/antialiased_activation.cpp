#include "layers/antialiased_activation.hpp"

#include "layers/check.hpp"
#include "ops/antialias.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kTaps = 12;

Tensor half_band_filter(const AntialiasedActivation::Options& options) {
  return kaiser_sinc_filter(0.25, 0.3, kTaps, {.dtype = options.dtype, .device = options.device}).reshape({1, 1, kTaps});
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
  return antialias(
      x, [this](const Tensor& y) { return activation_->forward(y); }, up_, down_);
}

}  // namespace polyphase
