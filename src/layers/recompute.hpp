#pragma once
// Activation checkpointing: memory for time.

#include <cstdint>

#include "../layers/module.hpp"

namespace polyphase {

/// module(x), of which only x is kept for the backward pass: that computes module(x) again and goes through it (Chen et al.,
/// arXiv 1604.06174). The same bits as module(x), under the same AutocastGuard and with the same random numbers; what the
/// module counts for itself, such as BatchNorm's statistics or spectral norm's steps, it counts twice. The module must outlive
/// the backward pass. Its parameters' gradients are added while the pass runs, not at its end. Throws what the module throws.
[[nodiscard]] Tensor recompute(Module& module, const Tensor& x);

/// The same for a sequence x (N, C, L) whose activations do not fit into memory: at no time are there those of more than
/// `piece` positions of x and of their receptive field. The module runs on one piece after another, forward and again in the
/// backward pass, each with the inputs that its outputs depend on. The outputs are module(x)'s, on the CPU bit for bit, else
/// within rounding. The pieces' gradients are added in order: those of x and of the parameters agree with module(x)'s within
/// rounding, and have the same bits every run. Work for the receptive field is done again for each piece. With DataParallel
/// every piece sends its gradients. Throws ShapeError unless x is (N, C, L >= 1) and piece >= 1; NotImplemented naming a module
/// that cannot be streamed, or a network whose outputs depend on the whole past; Error as a Stream does for modules that need
/// the whole sequence in training (BatchNorm).
[[nodiscard]] Tensor recompute_in_pieces(Module& module, const Tensor& x, std::int64_t piece);

}  // namespace polyphase
