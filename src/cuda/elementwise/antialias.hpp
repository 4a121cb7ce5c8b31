#pragma once
// An activation at twice the sampling rate on the device (TensorBackend::antialiased_snake, antialiased_snake_backward).

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// One launch.
void antialiased_snake(const Tensor& out, const AntialiasedSnake& in, cudaStream_t stream);
/// One launch; two if alpha or beta need a gradient.
void antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in, const Tensor& gradient,
                                cudaStream_t stream);

}  // namespace polyphase::cuda
