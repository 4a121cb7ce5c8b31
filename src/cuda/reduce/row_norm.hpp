#pragma once
// Layer norm and RMS norm of rows in one kernel (TensorBackend::normalize_rows).

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp. Asynchronous on `stream`.
void normalize_rows(const NormalizedRows& out, const RowNorm& in, cudaStream_t stream);

}  // namespace polyphase::cuda
