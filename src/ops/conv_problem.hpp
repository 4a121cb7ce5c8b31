#pragma once
// From the arguments of a convolution to its ConvProblem: every misfit is refused here, with the numbers. Not for users.

#include "ops/conv.hpp"

namespace polyphase::ops {

/// The problem of conv_transpose1d; an unbatched x (C_in, L_in) is a batch of one. Throws ShapeError, DTypeError, DeviceError.
[[nodiscard]] ConvProblem conv_transpose1d_problem(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                                   const ConvTranspose1dOptions& options);

/// The problem whose dgrad is conv1d of x: the problem's y is conv1d's input and its x the output.
/// The padding is taken as zeros, whatever options.padding_mode says. Throws ShapeError, DTypeError, DeviceError.
[[nodiscard]] ConvProblem conv1d_problem(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                         const Conv1dOptions& options);

/// The padding in numbers: what Padding::same() comes to for this kernel. Throws ShapeError where it cannot be had.
[[nodiscard]] Padding resolve_padding(const char* operation, Padding padding, std::int64_t kernel_size, std::int64_t stride,
                                      std::int64_t dilation);

}  // namespace polyphase::ops
