#pragma once
// The recurrent part of an LSTM on the device (Backend::lstm).

#include <cuda_runtime.h>

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// Whether lstm() can compute a layer: f32, and all of its weights fit in the registers of the GPU's multiprocessors.
[[nodiscard]] bool lstm_fits(DType dtype, std::int64_t H, int device);

/// As in tensor/tensor_backend.hpp, all steps in one kernel. Requires lstm_fits(). The bits of a step do not depend on the
/// number of steps, nor those of a sample on the batch.
void lstm(const Tensor& gates, const Tensor& weight, const Tensor& hidden, const Tensor& cells, cudaStream_t stream);

}  // namespace polyphase::cuda
