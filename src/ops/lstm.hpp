#pragma once
// Long short-term memory (Hochreiter and Schmidhuber 1997), in PyTorch's form. Differentiable.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// The parameters of an LSTM layer; H units, C inputs, gates in the order i, f, g, o.
struct LstmWeights {
  Tensor input;                        ///< weight_ih (4H, C)
  Tensor hidden;                       ///< weight_hh (4H, H)
  Tensor input_bias{}, hidden_bias{};  ///< bias_ih and bias_hh (4H), which are added; either may be undefined
};
/// The state of a layer after a step. It has x's dtype, or f32 if x is f16 or bf16.
struct LstmState {
  Tensor hidden{};  ///< h (N, H)
  Tensor cell{};    ///< c (N, H)
};
struct LstmResult {
  Tensor y;  ///< h after each step (N, L, H)
  LstmState state;
};
/// One layer over x (N, L, C), starting from `state` (zeros if undefined):
///   (i, f, g, o) = weight_ih x_t + bias_ih + bias_hh + weight_hh h,
///   c = sigmoid(f) c + sigmoid(i) tanh(g),  h = sigmoid(o) tanh(c).
/// On the CPU the result of a step does not depend on the number of steps in one call. f16 and bf16 are computed in f32. Throws
/// ShapeError, DTypeError, DeviceError if the operands do not fit.
[[nodiscard]] LstmResult lstm(const Tensor& x, const LstmWeights& weights, const LstmState& state = {});

}  // namespace polyphase
