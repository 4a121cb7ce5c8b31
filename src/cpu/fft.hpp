#pragma once
// Discrete Fourier transforms of real rows.

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// out (R, n/2 + 1, 2) = DFT of in (R, n), n even; contiguous; f32 or f64. Fast where n has small prime factors: a prime factor
/// p takes p operations a point. Relative error about 1e-7 log2(n) in f32. Throws DTypeError for other dtypes.
void rfft(const Tensor& out, const Tensor& in);
/// The adjoint of rfft, in (R, n/2 + 1, 2), out (R, n); the formula is in tensor/backend.hpp.
void rfft_adjoint(const Tensor& out, const Tensor& in);

}  // namespace polyphase::cpu
