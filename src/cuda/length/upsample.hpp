#pragma once
// Linear upsampling on the device (Backend::upsample_linear, upsample_linear_backward).

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

// As in tensor/tensor_backend.hpp, with the bits of a CPU that has fused multiply-adds.
void upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale, cudaStream_t stream);
void upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale, cudaStream_t stream);

}  // namespace polyphase::cuda
