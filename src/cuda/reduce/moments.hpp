#pragma once
// Mean and variance on the device (Backend::moments).

#include <cuda_runtime.h>

#include "device/backend.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp; sums are added as in reduce().
void moments(const Moments& out, const Tensor& in, double q, cudaStream_t stream);

}  // namespace polyphase::cuda
