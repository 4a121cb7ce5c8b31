#pragma once
// Layer norm and RMS norm in one kernel (TensorBackend::normalize_channels).

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp. Asynchronous on `stream`.
void normalize_channels(const NormOutputs& out, const NormInputs& in, cudaStream_t stream);
/// The same for x (N, C).
void normalize_rows(const NormOutputs& out, const NormInputs& in, cudaStream_t stream);

}  // namespace polyphase::cuda
