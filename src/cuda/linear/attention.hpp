#pragma once
// Attention of few queries in one kernel (TensorBackend::attention): a frame of a stream, or a short piece of sound.

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// Whether one kernel is faster than matrix products: heads of at most kHeadMost numbers, and at most kTermsMost products.
[[nodiscard]] bool attention_fits(const AttentionInputs& in);
/// As in tensor/tensor_backend.hpp, if attention_fits(). Asynchronous on `stream`.
void attention(const Tensor& out, const AttentionInputs& in, cudaStream_t stream);

}  // namespace polyphase::cuda
