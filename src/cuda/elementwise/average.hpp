#pragma once
// The average of tensors and an activation of it in one pass over memory (TensorBackend::average_of).

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "tensor/map_op.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cuda {

inline constexpr std::size_t kAveragedMost = 4;  ///< tensors that one kernel reads

/// As in tensor/tensor_backend.hpp, for at most kAveragedMost parts. Asynchronous on `stream`.
void average_of(const Tensor& out, std::span<const Tensor> parts, double divisor, Activation activation, double slope,
                cudaStream_t stream);

}  // namespace polyphase::cuda
