#pragma once
// Matrix products.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// (..., M, K) x (..., K, N) -> (..., M, N); leading dimensions broadcast; rank 2 or more. Differentiable. f32, f64, f16, bf16.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b);
/// x (..., in) -> (..., out) = x w^T + b with w (out, in), b (out) or undefined. Differentiable.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace polyphase
