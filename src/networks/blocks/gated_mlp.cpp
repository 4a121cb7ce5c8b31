#include "networks/blocks/gated_mlp.hpp"

#include "layers/streaming/module_stream.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {

GatedMlp::GatedMlp(const Options& options)
    : gate_({.in_features = options.channels, .out_features = options.hidden, .bias = false}),
      up_({.in_features = options.channels, .out_features = options.hidden, .bias = false}),
      down_({.in_features = options.hidden, .out_features = options.channels, .bias = false}),
      activation_(options.activation) {}

void GatedMlp::visit(Visitor& visitor) {
  visitor.module("gate_proj", gate_);
  visitor.module("up_proj", up_);
  visitor.module("down_proj", down_);
}

Tensor GatedMlp::forward(const Tensor& x) { return down_(mul(activation_->forward(gate_(x)), up_(x))); }

std::unique_ptr<ModuleStream> GatedMlp::make_stream() {
  return std::make_unique<layers::PointwiseStream>(
      *this, layers::PointwiseStream::Options{.layout = ModuleStream::Layout::channels_last});
}

}  // namespace polyphase
