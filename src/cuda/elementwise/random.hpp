#pragma once
// Random numbers on the device: the same as the CPU's for the same generator state (Backend::uniform, normal).

#include <cuda_runtime.h>

#include "tensor/random.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// Contiguous out; Philox words and their use as in tensor/tensor_backend.hpp. Throws DTypeError for i64.
void uniform(const Tensor& out, GeneratorState state, double low, double high, cudaStream_t stream);
void normal(const Tensor& out, GeneratorState state, double mean, double deviation, cudaStream_t stream);

}  // namespace polyphase::cuda
