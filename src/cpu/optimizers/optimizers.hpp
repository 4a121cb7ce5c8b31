#pragma once
// One optimizer step over all parameters; formulas as in PyTorch's torch.optim.

#include <span>

#include "device/backend.hpp"

namespace polyphase::cpu {

/// With t the parameter's step count, including this update:
///   g += decay*w;  v = t == 1 ? g : momentum*v + (1 - dampening)*g;
///   w -= rate * (momentum == 0 ? g : nesterov ? g + momentum*v : v).
/// f32 and f64; others throw DTypeError.
void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control);

/// decoupled ? w *= 1 - rate*decay : g += decay*w;  m += (1 - b1)*(g - m);  v = b2*v + (1 - b2)*g*g;
/// w -= rate/(1 - b1^t) * m / (sqrt(v)/sqrt(1 - b2^t) + epsilon).  f32 and f64; others throw DTypeError.
void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control);

}  // namespace polyphase::cpu
