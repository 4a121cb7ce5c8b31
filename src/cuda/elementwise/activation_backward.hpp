#pragma once
// The backward pass through a convolution's epilogue: the activation's derivative and the gradient of the bias in one pass.

#include <cuda_runtime.h>

#include "device/backend.hpp"

namespace polyphase::cuda {

/// Backend::activation_backward on `stream`. One launch; two for few long channels, or if the GPU has no clusters.
void activation_backward(const ConvEpilogue& epilogue, const Tensor& result, const Tensor& gradient, const Tensor& in,
                         const Tensor& sums, cudaStream_t stream);

}  // namespace polyphase::cuda
