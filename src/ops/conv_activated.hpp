#pragma once
// The convolutions with an epilogue behind them, in one pass where a device can. Not for users: layers that stand in front of
// an activation or at the end of a residual block use them (layers/fused.hpp).

#include "ops/conv.hpp"
#include "tensor/backend.hpp"

namespace polyphase::ops {

/// residual + scale*activation(conv_transpose1d(x, weight, bias, options)): the same bits, gradients and errors as by
/// snake_beta(), relu(), ... and add_scaled(). Without a residual the activation alone, whose derivative is computed together
/// with the bias' gradient, from its result, so that only that is kept. Of snake the argument is kept, written in the same
/// pass. One pass where the derivative is known from what is kept: with a residual, activations other than snake are followed
/// by a pass of its own where gradients are recorded. So is everything under an AutocastGuard. Throws ShapeError where the
/// residual has not the output's shape, DTypeError or DeviceError where not its dtype or device.
[[nodiscard]] Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                      const ConvTranspose1dOptions& options, const ConvEpilogue& epilogue);
/// residual + scale*activation(conv1d(x, weight, bias, options)) likewise.
[[nodiscard]] Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options,
                            const ConvEpilogue& epilogue);

}  // namespace polyphase::ops
