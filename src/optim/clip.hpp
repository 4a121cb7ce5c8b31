#pragma once
// Gradient clipping.

#include <vector>

#include "../tensor/tensor.hpp"

namespace polyphase {

struct ClipOptions {
  bool error_if_nonfinite =
      false;  ///< throws Error, changing nothing, instead of scaling by a NaN or to zero; waits for the device
};

/// Scales all gradients, in place, by max_norm/(norm + 1e-6) if that is below 1, with norm = sqrt(sum of squares of all their
/// elements). Returns the norm before scaling, one f64 on the gradients' device: PyTorch's clip_grad_norm_. Parameters without
/// gradient are skipped; if none has one the norm is 0. Does not wait for the device (item() of the norm does); may be recorded
/// by cuda::capture. Throws ShapeError unless max_norm > 0, DeviceError unless all gradients are on one device.
Tensor clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm, const ClipOptions& options = {});

}  // namespace polyphase
