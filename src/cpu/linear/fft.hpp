#pragma once
// Discrete Fourier transforms of real rows.

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// out (R, n/2 + 1, 2) = DFT of in (R, n), n even; contiguous; f32 or f64. A prime factor p of n/2 takes p operations per point
/// up to kLargestRadix; beyond it f32 is computed in f64 (tensor/fourier.hpp). For the error see docs/precision.md. Throws
/// DTypeError for other dtypes.
void rfft(const Tensor& out, const Tensor& in);
/// The adjoint of rfft, in (R, n/2 + 1, 2), out (R, n); the formula is in tensor/tensor_backend.hpp.
void rfft_adjoint(const Tensor& out, const Tensor& in);

}  // namespace polyphase::cpu
