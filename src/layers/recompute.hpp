#pragma once
// Activation checkpointing: memory for time.

#include "../layers/module.hpp"

namespace polyphase {

/// module(x), of which only x is kept for the backward pass: that computes module(x) again and goes through it (Chen et al.,
/// arXiv 1604.06174). The same bits as module(x), under the same AutocastGuard and with the same random numbers; what the
/// module counts for itself, such as BatchNorm's statistics or spectral norm's steps, it counts twice. The module must outlive
/// the backward pass. Its parameters' gradients are added while the pass runs, not at its end. Throws what the module throws.
[[nodiscard]] Tensor recompute(Module& module, const Tensor& x);

}  // namespace polyphase
