#pragma once
// The recurrent part of an LSTM.

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// Backend::lstm. The result of a step does not depend on the number of steps, the batch or the number of threads.
void lstm(const Tensor& gates, const Tensor& weight, const Tensor& hidden, const Tensor& cells);

}  // namespace polyphase::cpu
