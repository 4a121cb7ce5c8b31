#pragma once
// An activation at twice the sampling rate in one pass. Shapes as in tensor/tensor_backend.hpp.

#include "tensor/tensor_backend.hpp"

namespace polyphase::cpu {

/// TensorBackend::antialiased_snake. 16-bit types are computed in f32 and rounded once.
void antialiased_snake(const Tensor& out, const AntialiasedSnake& in);
/// TensorBackend::antialiased_snake_backward.
void antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in, const Tensor& gradient);

}  // namespace polyphase::cpu
