#pragma once
// The convolutions with an activation behind them, in one pass where a device can. Not for users: layers that stand in front of
// an activation use them (layers/fused.hpp).

#include "ops/conv.hpp"
#include "tensor/backend.hpp"

namespace polyphase::ops {

/// activation(conv_transpose1d(x, weight, bias, options)): the same bits, gradients and errors. The backward pass computes the
/// activation's derivative and the bias' gradient together, from the result, so that only that is kept. Snake is one pass where
/// nothing is recorded, else two: its derivative needs its argument.
[[nodiscard]] Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                      const ConvTranspose1dOptions& options, const ConvEpilogue& epilogue);
/// activation(conv1d(x, weight, bias, options)) likewise.
[[nodiscard]] Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options,
                            const ConvEpilogue& epilogue);

}  // namespace polyphase::ops
