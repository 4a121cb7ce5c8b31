#pragma once
// What a convolution can apply to its input and to its sums in the same pass over memory.

#include "../tensor/map_op.hpp"
#include "../tensor/tensor.hpp"

namespace polyphase {

/// What a convolution reads: activation(x).
struct ConvInputOptions {
  Activation activation = Activation::none;  ///< none, relu, leaky_relu or snake
  double slope = 0.01;                       ///< for leaky_relu: leaky_relu()'s negative_slope
  Tensor alpha{};                            ///< for snake, (C_in), required
  Tensor beta{};                             ///< for snake, (C_in), as in snake_beta(); undefined: alpha, as in snake()
};

/// What a convolution computes from its sums: residual + scale*activation(sums + bias), or the activation alone.
struct ConvOutputOptions {
  Activation activation = Activation::none;
  double slope = 0.01;  ///< for leaky_relu: leaky_relu()'s negative_slope
  Tensor alpha{};       ///< for snake, (C_out), required
  Tensor beta{};        ///< for snake, (C_out), as in snake_beta(); undefined: alpha, as in snake()
  Tensor residual{};    ///< of the output's shape, dtype and device; undefined: nothing is added
  double scale = 1;     ///< factor of what is added to the residual
};

}  // namespace polyphase
