#pragma once
// Rotary positions on the device (TensorBackend::rope).

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp. Asynchronous on `stream`.
void rope(const Tensor& out, const Tensor& x, const Rotation& rotation, cudaStream_t stream);

}  // namespace polyphase::cuda
