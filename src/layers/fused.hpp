#pragma once
// Pairs of layers that are one pass over memory. Not for users: Sequential asks for each pair of neighbours.

#include <optional>

#include "layers/module.hpp"

namespace polyphase::layers {

/// second(first(x)) with the same bits where `first` is a Conv1d or ConvTranspose1d and `second` a ReLU, LeakyReLU, Tanh, Snake
/// or SnakeBeta, itself and not a class derived from it, which might do something else; otherwise nothing, and nothing is done.
[[nodiscard]] std::optional<Tensor> forward_fused(Module& first, Module& second, const Tensor& x);

}  // namespace polyphase::layers
