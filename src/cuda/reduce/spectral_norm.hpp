#pragma once
// w = W/sigma(W) with a step of power iteration, and its gradient (TensorBackend::spectral_norm).

#include <cuda_runtime.h>

#include <span>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp. Asynchronous on `stream`.
void spectral_norm(std::span<const SpectralWeight> weights, int device, cudaStream_t stream);
/// The same for the gradients.
void spectral_norm_backward(std::span<const SpectralWeightGradient> gradients, int device, cudaStream_t stream);

}  // namespace polyphase::cuda
