#pragma once
// Sums of codebooks' entries on the device (TensorBackend::embed).

#include <cuda_runtime.h>

#include <span>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp: one launch for up to 64 tables. A code outside its table is noted for report_bad_index()
/// and counts as an entry of zeros. Asynchronous on `stream`.
void embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage,
           cudaStream_t stream);

}  // namespace polyphase::cuda
