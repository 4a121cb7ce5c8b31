#pragma once
// w = v*(g/||v||) for rows and its gradients, in one launch each (TensorBackend::weight_norm).

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp; v is not empty. Asynchronous on `stream`.
void weight_norm(const Tensor& w, const Tensor& norms, const Tensor& v, const Tensor& g, cudaStream_t stream);
/// The same for the gradients.
void weight_norm_backward(const Tensor& dv, const Tensor& dg, const Tensor& dw, const Tensor& v, const Tensor& g,
                          const Tensor& norms, cudaStream_t stream);

}  // namespace polyphase::cuda
