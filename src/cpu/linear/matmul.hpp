#pragma once
// Batched matrix products.

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// out (B, M, N) = a (B, M, K) * b (B, K, N); out contiguous, a and b of any strides, all of one dtype. 16-bit types are
/// accumulated in f32 and rounded once. i64 throws DTypeError.
void matmul(const Tensor& out, const Tensor& a, const Tensor& b);

}  // namespace polyphase::cpu
