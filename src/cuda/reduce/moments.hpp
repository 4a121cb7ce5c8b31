#pragma once
// Mean and variance on the device (Backend::moments).

#include <cuda_runtime.h>

#include "device/backend.hpp"

namespace polyphase::cuda {

/// As tensor/tensor_backend.hpp says; sums as reduce() adds them.
void moments(const Moments& out, const Tensor& in, double q, cudaStream_t stream);

}  // namespace polyphase::cuda
