#include "layers/lstm.hpp"

#include <cmath>
#include <string>

#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"

namespace polyphase {
namespace {

class LstmStream : public ModuleStream {
 public:
  explicit LstmStream(LSTM& lstm) : lstm_(lstm) {}

  [[nodiscard]] Tensor push(const Tensor& x, bool) override {
    LSTM::State state = state_;
    const Tensor y = lstm_.forward(layers::length_second(x), state);
    keep(state);
    return layers::length_last(y);
  }

  void reset() override { state_.clear(); }
  [[nodiscard]] Span inputs_of(Span outputs) const override { return {kAllBefore, outputs.last}; }
  [[nodiscard]] Rate rate() const override { return {}; }
  [[nodiscard]] Layout layout() const override { return Layout::channels_last; }

 private:
  // In place after the first time, so that a push can be recorded once and replayed.
  void keep(const LSTM::State& state) {
    for (std::size_t k = 0; k < state.size(); ++k) {
      if (state_.size() == k) {
        state_.push_back({state[k].hidden.clone(), state[k].cell.clone()});
        layers::note_new_state();
      } else {
        state_[k].hidden.copy_(state[k].hidden);
        state_[k].cell.copy_(state[k].cell);
      }
    }
  }

  LSTM& lstm_;
  LSTM::State state_;
};

}  // namespace

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
  LstmStackResult result = lstm_stack(x, layers_, state);
  state = std::move(result.states);
  return result.y;
}

std::unique_ptr<ModuleStream> LSTM::make_stream() { return std::make_unique<LstmStream>(*this); }

}  // namespace polyphase
