#pragma once
// The recurrent part of an LSTM on the device (Backend::lstm).

#include <cuda_runtime.h>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// Whether lstm() can compute the layer: f32, and all of its weights fit in the registers of the GPU's multiprocessors.
[[nodiscard]] bool lstm_fits(const LstmSteps& layer, int device);
/// Whether lstm_pair() can compute the two layers together: of one H and with weights of one dtype.
[[nodiscard]] bool lstm_pair_fits(const LstmSteps& first, const LstmSteps& second, int device);

/// All steps of a layer in one kernel, from its gates on. Requires lstm_fits(). The bits of a step do not depend on the number
/// of steps, nor those of a sample on the batch.
void lstm(const LstmSteps& layer, cudaStream_t stream);

/// The same for two layers, from the first one's gates on. Requires lstm_pair_fits().
void lstm_pair(const LstmSteps& first, const LstmSteps& second, cudaStream_t stream);

}  // namespace polyphase::cuda
