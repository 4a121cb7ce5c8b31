#pragma once
// Rotary positions on the host (TensorBackend::rope).

#include "tensor/tensor_backend.hpp"

namespace polyphase::cpu {

/// As in tensor/tensor_backend.hpp.
void rope(const Tensor& out, const Tensor& x, const Rotation& rotation);

}  // namespace polyphase::cpu
