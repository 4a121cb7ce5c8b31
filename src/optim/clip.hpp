#pragma once
// Keeping gradients from blowing up.

#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase {

struct ClipOptions {
  bool error_if_nonfinite = false;  ///< throw Error, changing nothing, instead of scaling by a NaN or to zero
};

/// Scales all gradients by max_norm/(norm + 1e-6) where that is below 1, with norm = sqrt(sum of squares of all their
/// elements); returns the norm before (PyTorch's clip_grad_norm_). Parameters without gradient are skipped. Waits for the
/// device. Throws ShapeError unless max_norm > 0.
double clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm, const ClipOptions& options = {});

}  // namespace polyphase
