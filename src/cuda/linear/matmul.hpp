#pragma once
// Matrix products on the device (Backend::matmul).

#include <cuda_runtime.h>

#include "conv/algorithm.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp. f32 in f32 arithmetic unless `precision` is tf32; 16-bit types with f32 sums. Throws
/// DTypeError for i64.
void matmul(const Tensor& out, const Tensor& a, const Tensor& b, Precision precision, cudaStream_t stream);

}  // namespace polyphase::cuda
