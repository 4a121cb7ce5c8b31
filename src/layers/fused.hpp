#pragma once
// Neighbouring layers that are one pass over memory. Not for users: Sequential and Residual run their modules by it.

#include <memory>
#include <span>

#include "layers/module.hpp"

namespace polyphase::layers {

using Modules = std::span<const std::shared_ptr<Module>>;

/// How many modules from `first` on are one pass: a Conv1d or ConvTranspose1d and the ReLU, LeakyReLU, Tanh, Snake or SnakeBeta
/// behind it are two, each itself and not a class derived from it, which might do something else. Else one.
[[nodiscard]] std::size_t pass_length(Modules modules, std::size_t first);

/// Each module's output is the next one's input; x itself where there is none. In passes of pass_length(), which change no
/// bits.
[[nodiscard]] Tensor forward_all(Modules modules, const Tensor& x);

/// add_scaled(x, forward_all(modules, x), scale), where the result has x's shape. The last pass of `modules`, or of Sequentials
/// that end them, adds x as well where it is a convolution's; that changes no bits. Throws ShapeError where the result has
/// another shape.
[[nodiscard]] Tensor forward_residual(Modules modules, const Tensor& x, double scale);

}  // namespace polyphase::layers
