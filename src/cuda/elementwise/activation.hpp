#pragma once
// Activations of contiguous tensors.

#include <cuda_runtime.h>

#include "tensor/map_op.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// out = op(x) for relu, leaky_relu, elu, gelu, gelu_tanh, silu, tanh and sigmoid of contiguous tensors whose first element is
/// aligned to 16 bytes; `p` as in MapScalars. Returns false and does nothing for other operations and layouts. The bits of the
/// general kernel. Asynchronous on `stream`.
[[nodiscard]] bool activate(MapOp op, const Tensor& out, const Tensor& x, double p, cudaStream_t stream);

}  // namespace polyphase::cuda
