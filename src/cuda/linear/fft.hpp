#pragma once
// The real Fourier transform and its adjoint on the device (Backend::rfft, rfft_adjoint).

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

// As tensor/tensor_backend.hpp says. Throw DTypeError unless f32 or f64.
void rfft(const Tensor& out, const Tensor& in, cudaStream_t stream);
void rfft_adjoint(const Tensor& out, const Tensor& in, cudaStream_t stream);

}  // namespace polyphase::cuda
