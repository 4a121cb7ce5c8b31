#pragma once
// Padding of rows: zeros, a reflection or the end elements on both sides. All tensors contiguous; shapes as in
// tensor/tensor_backend.hpp.

#include "conv/problem.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// out (R, P): in (R, L) from column `left` on, padded as `mode` says.
void pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode);
/// The adjoint, out (R, L) of in (R, P), for reflect and replicate. 16-bit types are summed in f32.
void pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode);

}  // namespace polyphase::cpu
