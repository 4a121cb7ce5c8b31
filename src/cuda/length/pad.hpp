#pragma once
// Padding of rows on the device (Backend::pad, pad_backward).

#include <cuda_runtime.h>

#include "conv/problem.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cuda {

// As in tensor/tensor_backend.hpp, with the CPU's bits.
void pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode, cudaStream_t stream);
void pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode, cudaStream_t stream);

}  // namespace polyphase::cuda
