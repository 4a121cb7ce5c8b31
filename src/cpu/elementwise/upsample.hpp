#pragma once
// Linear upsampling along the last dimension. All tensors contiguous; shapes as in tensor/tensor_backend.hpp.

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// out (R, L*S) of in (R, L), as Backend::upsample_linear. 16-bit types are computed in f32 and rounded once.
void upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale);
/// The adjoint: out (R, L) of in (R, L*S).
void upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale);

}  // namespace polyphase::cpu
