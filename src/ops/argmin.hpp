#pragma once
// Where the smallest and the largest elements are.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// The position, i64, of the smallest (largest) element along `dim` (negative counts from the end), which goes away; the first
/// of several, and of a NaN before any number, as in PyTorch. Not differentiable. Throws ShapeError where `dim` has no elements
/// or there is none such, DTypeError unless x is floating point.
[[nodiscard]] Tensor argmin(const Tensor& x, int dim);
[[nodiscard]] Tensor argmax(const Tensor& x, int dim);

}  // namespace polyphase
