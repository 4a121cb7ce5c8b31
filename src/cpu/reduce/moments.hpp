#pragma once
// Mean and variance in one call.

#include "device/backend.hpp"

namespace polyphase::cpu {

/// As Backend::moments says; sums as reduce() adds them.
void moments(const Moments& out, const Tensor& in, double q);

}  // namespace polyphase::cpu
