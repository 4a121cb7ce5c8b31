#pragma once
// The forward pass of snake on contiguous rows with parameters of their channels.

#include <cuda_runtime.h>

#include <span>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// MapOp::snake where x and `out` are contiguous and alpha and beta are the same along the innermost dimension; `inputs` are x,
/// alpha and beta, with out's shape. Returns false and does nothing for other layouts. Asynchronous on `stream`.
[[nodiscard]] bool snake_rows(const Tensor& out, std::span<const Tensor> inputs, cudaStream_t stream);

}  // namespace polyphase::cuda
