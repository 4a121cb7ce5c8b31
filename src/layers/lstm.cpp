#include "layers/lstm.hpp"

#include <cmath>
#include <string>

#include "layers/check.hpp"

namespace polyphase {

LSTM::LSTM(const Options& options) : options_(options) {
  layers::require_at_least("LSTM", "input_size", options.input_size, 1);
  layers::require_at_least("LSTM", "hidden_size", options.hidden_size, 1);
  layers::require_at_least("LSTM", "num_layers", options.num_layers, 1);
  layers::require_floating("LSTM", options.dtype);
  const std::int64_t H = options.hidden_size;
  const double bound = 1 / std::sqrt(static_cast<double>(H));
  const auto learned = [&](const Shape& shape) {
    Tensor tensor = Tensor::uniform(shape, -bound, bound, {.dtype = options.dtype, .device = options.device});
    return tensor.set_requires_grad(true);
  };
  for (std::int64_t k = 0; k < options.num_layers; ++k) {
    LstmWeights layer;
    layer.input = learned({4 * H, k == 0 ? options.input_size : H});
    layer.hidden = learned({4 * H, H});
    if (options.bias) layer.input_bias = learned({4 * H});
    if (options.bias) layer.hidden_bias = learned({4 * H});
    layers_.push_back(layer);
  }
}

void LSTM::visit(Visitor& visitor) {
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    const std::string suffix = "_l" + std::to_string(k);
    visitor.parameter("weight_ih" + suffix, layers_[k].input);
    visitor.parameter("weight_hh" + suffix, layers_[k].hidden);
    visitor.parameter("bias_ih" + suffix, layers_[k].input_bias);
    visitor.parameter("bias_hh" + suffix, layers_[k].hidden_bias);
  }
}

Tensor LSTM::forward(const Tensor& x) {
  State zeros;
  return forward(x, zeros);
}

Tensor LSTM::forward(const Tensor& x, State& state) {
  require<ShapeError>(state.empty() || state.size() == layers_.size(), "LSTM: expected a state of ", layers_.size(),
                      " layers, got ", state.size());
  State after;
  Tensor y = x;
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    LstmResult result = lstm(y, layers_[k], state.empty() ? LstmState{} : state[k]);
    y = result.y;
    after.push_back(result.state);
  }
  state = std::move(after);
  return y;
}

}  // namespace polyphase
