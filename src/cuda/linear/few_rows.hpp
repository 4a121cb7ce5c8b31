#pragma once
// Products of few rows with what comes before and after them (TensorBackend::linear).

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// Whether few_rows() computes it: up to 8 rows of f32, f16 or bf16, whole 16-byte vectors in a row, up to 2^24 weights.
[[nodiscard]] bool few_rows_fit(const LinearInputs& in);
/// As in tensor/tensor_backend.hpp, if few_rows_fit(). Asynchronous on `stream`.
void few_rows(const Tensor& out, const LinearInputs& in, cudaStream_t stream);

}  // namespace polyphase::cuda
