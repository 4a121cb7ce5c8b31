#pragma once
// A matrix product that adds in one order for every size.

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// As matmul(), each element the sum over K in ascending order, in f32 (f64 for f64). For LengthInvariantGuard.
void matmul_in_order(const Tensor& out, const Tensor& a, const Tensor& b, cudaStream_t stream);

}  // namespace polyphase::cuda
