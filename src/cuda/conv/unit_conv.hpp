#pragma once
// A convolution of a residual unit, and what follows the unit, as addresses.

#include "cuda/conv/packed_weights.hpp"

namespace polyphase::cuda {

/// Arrays of the unit's dtype: weights (C, C, K), or (C, 1, K) of a depthwise one, bias (C) or null, and with Snake alpha and
/// beta (C) of what it reads.
struct UnitConv {
  Weights weights;
  const void* bias = nullptr;
  const void* alpha = nullptr;
  const void* beta = nullptr;
};

/// out = act((other + y)/divisor) of the unit's result y (device/conv_backend.hpp); out = y where `other` is null.
struct UnitAverage {
  const void* other = nullptr;  ///< of the unit's shape and dtype
  float divisor = 1, slope = 1, inverse = 1;
  UnitAverage() = default;
  UnitAverage(const void* with, double by, double of_negative)
      : other(with),
        divisor(static_cast<float>(by)),
        slope(static_cast<float>(of_negative)),
        inverse(1 / static_cast<float>(by)) {}
};

}  // namespace polyphase::cuda
