#pragma once
// The recurrent part of an LSTM.

#include "tensor/tensor_backend.hpp"

namespace polyphase::cpu {

/// All steps of a layer of Backend::lstm, from its gates on; all tensors of one dtype. The result of a step does not depend on
/// the number of steps, the batch or the number of threads.
void lstm(const LstmSteps& layer);

}  // namespace polyphase::cpu
