#pragma once
// Copies, conversions and fills on the device (Backend::copy, fill, arange, copy_to_host).

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// out = in, of one shape, any strides; dtype converted as on the CPU.
void copy(const Tensor& out, const Tensor& in, cudaStream_t stream);
void fill(const Tensor& out, double value, cudaStream_t stream);
/// `out` is contiguous.
void arange(const Tensor& out, double start, double step, cudaStream_t stream);

/// Waits for the stream: for earlier work and for the bytes. For the opposite direction see memory/staging.hpp.
void copy_to_host(void* host_data, const void* device_data, std::size_t bytes, cudaStream_t stream);

}  // namespace polyphase::cuda
