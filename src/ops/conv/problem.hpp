#pragma once
// Converts the arguments of a convolution to its ConvProblem and rejects those that do not fit, with the numbers. Not for
// users.

#include "ops/conv.hpp"

namespace polyphase::ops {

/// The problem of conv_transpose1d; an unbatched x (C_in, L_in) is a batch of one. Throws ShapeError, DTypeError, DeviceError.
[[nodiscard]] ConvProblem conv_transpose1d_problem(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                                   const ConvTranspose1dOptions& options);

/// The problem whose dgrad is conv1d of x: the problem's y is conv1d's input and its x the output. The padding is treated as
/// zeros for any options.padding_mode. Throws ShapeError, DTypeError, DeviceError.
[[nodiscard]] ConvProblem conv1d_problem(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                         const Conv1dOptions& options);

/// The padding in numbers: resolves Padding::same() for this kernel. Throws ShapeError if that is not possible.
[[nodiscard]] Padding resolve_padding(const char* operation, Padding padding, std::int64_t kernel_size, std::int64_t stride,
                                      std::int64_t dilation);

}  // namespace polyphase::ops
