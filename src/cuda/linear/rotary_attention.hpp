#pragma once
// Attention of the next positions of a sequence with its rotations and its past (TensorBackend::rotary_attention).

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// 8 for f32, f16 and bf16 with heads of up to 128 numbers, a multiple of 8; else 0.
[[nodiscard]] std::int64_t rotary_attention_positions(DType dtype, std::int64_t head_size);
/// As in tensor/tensor_backend.hpp, for up to rotary_attention_positions(). Asynchronous on `stream`.
void rotary_attention(const Tensor& out, const RotaryAttention& in, cudaStream_t stream);

}  // namespace polyphase::cuda
