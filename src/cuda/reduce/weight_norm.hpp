#pragma once
// w = v*(g/||v||) for rows and its gradients, all of one dtype in one launch (TensorBackend::weight_norm).

#include <cuda_runtime.h>

#include <span>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp. Asynchronous on `stream`.
void weight_norm(std::span<const NormalizedWeight> weights, cudaStream_t stream);
/// The same for the gradients.
void weight_norm_backward(std::span<const NormalizedWeightGradient> gradients, cudaStream_t stream);

}  // namespace polyphase::cuda
