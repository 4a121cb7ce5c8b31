#pragma once
// The backward pass through snake: the gradients of its argument and of its channels' parameters in one pass.

#include <cuda_runtime.h>

#include "device/backend.hpp"

namespace polyphase::cuda {

/// Backend::snake_backward on `stream`. One launch; two if alpha or beta need a gradient.
void snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient, const SnakeGradients& out,
                    cudaStream_t stream);

}  // namespace polyphase::cuda
