#pragma once
// Attention of few queries in one kernel (TensorBackend::attention): a frame of a stream, or a short piece of sound.

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// Whether the kernel can compute it: heads of at most 128 numbers, rows with stride 1. A query's bits do not depend on the
/// other queries, nor on keys that it does not see.
[[nodiscard]] bool attention_can(const AttentionInputs& in);
/// Whether the kernel is faster than matrix products: at most 2^27 products.
[[nodiscard]] bool attention_is_fast(const AttentionInputs& in);
/// As in tensor/tensor_backend.hpp, if attention_can(). Asynchronous on `stream`.
void attention(const Tensor& out, const AttentionInputs& in, cudaStream_t stream);

}  // namespace polyphase::cuda
