#pragma once
// A convolution of a residual unit, as addresses.

#include "cuda/conv/packed_weights.hpp"

namespace polyphase::cuda {

/// Arrays of the unit's dtype: weights (C, C, K), bias (C) or null, and with Snake alpha and beta (C) of what it reads.
struct UnitConv {
  Weights weights;
  const void* bias = nullptr;
  const void* alpha = nullptr;
  const void* beta = nullptr;
};

}  // namespace polyphase::cuda
