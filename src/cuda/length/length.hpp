#pragma once
// Gather, scatter and overlap-add along the last dimension, on the device (Backend::gather, scatter_add, fold).

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

// As in tensor/tensor_backend.hpp; sums in the order of j or of the frames, as on the CPU, so the bits agree.
void gather(const Tensor& out, const Tensor& in, const Tensor& index, cudaStream_t stream);
void scatter_add(const Tensor& out, const Tensor& in, const Tensor& index, cudaStream_t stream);
void fold(const Tensor& out, const Tensor& in, std::int64_t step, cudaStream_t stream);

}  // namespace polyphase::cuda
