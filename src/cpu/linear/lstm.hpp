#pragma once
// The recurrent part of an LSTM.

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// Backend::lstm. What a step gives depends neither on the number of steps nor on the batch nor on the number of threads.
void lstm(const Tensor& gates, const Tensor& weight, const Tensor& hidden, const Tensor& cells);

}  // namespace polyphase::cpu
