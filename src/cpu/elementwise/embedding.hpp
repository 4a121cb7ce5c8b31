#pragma once
// Sums of codebooks' entries on the host (TensorBackend::embed).

#include <span>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cpu {

/// As in tensor/tensor_backend.hpp. Throws ShapeError for a code outside its table, before anything is written.
void embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage);

}  // namespace polyphase::cpu
