#pragma once
// Long short-term memory (Hochreiter and Schmidhuber 1997), in PyTorch's form. Differentiable.

#include <span>
#include <vector>

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
struct LstmStackResult {
  Tensor y;  ///< h of the last layer after each step (N, L, H)
  std::vector<LstmState> states;
};
/// One layer over x (N, L, C), starting from `state` (zeros if undefined):
///   (i, f, g, o) = weight_ih x_t + bias_ih + bias_hh + weight_hh h,
///   c = sigmoid(f) c + sigmoid(i) tanh(g),  h = sigmoid(o) tanh(c).
/// On the CPU the result of a step does not depend on the number of steps in one call. f16 and bf16 are computed in f32. Throws
/// ShapeError, DTypeError, DeviceError if the operands do not fit.
[[nodiscard]] LstmResult lstm(const Tensor& x, const LstmWeights& weights, const LstmState& state = {});

/// The layers one after another: layer k takes y of layer k - 1 and starts from states[k], or all from zeros if `states` is
/// empty. As lstm() layer by layer, but a GPU computes two layers of one H, at most 512, in the time of one. Throws also
/// ShapeError if there is no layer, or another number of states.
[[nodiscard]] LstmStackResult lstm_stack(const Tensor& x, std::span<const LstmWeights> layers,
                                         std::span<const LstmState> states = {});

}  // namespace polyphase
