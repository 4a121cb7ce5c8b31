#pragma once
// The held positions of a stream and the new ones (TensorBackend::advance).

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// Whether a block holds the (K + n)*C numbers of a row of `all`.
[[nodiscard]] bool advance_fits(const Tensor& all);
/// As in tensor/tensor_backend.hpp, if advance_fits(). Asynchronous on `stream`.
void advance(const Tensor& all, const Tensor& kept, const Tensor& x, cudaStream_t stream);

}  // namespace polyphase::cuda
