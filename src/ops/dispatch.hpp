#pragma once
// The step between an operation and a device: checks that operands go together, allocates the output, broadcasts, calls the
// backend. Not differentiable, not for users.

#include <initializer_list>
#include <span>

#include "tensor/backend.hpp"

namespace polyphase::ops {

/// Throws DTypeError or DeviceError naming `operation` unless all defined tensors share dtype and device.
void require_alike(const char* operation, std::span<const Tensor> tensors);
/// Throws DTypeError unless the tensor is floating point.
void require_floating(const char* operation, const Tensor& tensor);
/// A fresh tensor of the broadcast shape holding op(inputs...).
[[nodiscard]] Tensor map(const char* operation, MapOp op, std::initializer_list<Tensor> inputs, MapScalars scalars = {});

}  // namespace polyphase::ops
