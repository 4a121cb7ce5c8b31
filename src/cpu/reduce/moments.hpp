#pragma once
// Mean and variance in one call.

#include "device/backend.hpp"

namespace polyphase::cpu {

/// As in Backend::moments; sums are added as in reduce().
void moments(const Moments& out, const Tensor& in, double q);

}  // namespace polyphase::cpu
