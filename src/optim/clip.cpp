#include "optim/clip.hpp"

#include <cmath>

#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "optim/gradients.hpp"

namespace polyphase {

Tensor clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm, const ClipOptions& options) {
  require<ShapeError>(max_norm > 0, "clip_grad_norm: expected max_norm > 0, got ", max_norm);
  const NoGradGuard no_grad;
  const std::vector<Tensor> gradients = contiguous_gradients("clip_grad_norm", parameters);
  if (gradients.empty()) {
    const Device device = parameters.empty() ? default_device() : parameters.front().device();
    return Tensor::zeros({}, {.dtype = DType::f64, .device = device});
  }
  const Device device = gradients.front().device();
  const Tensor norm = Tensor::empty({}, {.dtype = DType::f64, .device = device});
  backend_of(device).clip_norm(gradients, max_norm, options.error_if_nonfinite, norm);
  for (const Tensor& gradient : gradients) gradient.storage().bump_version();
  if (options.error_if_nonfinite) {
    const double total = norm.item();
    require<Error>(std::isfinite(total), "clip_grad_norm: the norm of the gradients is ", total);
  }
  return norm;
}

}  // namespace polyphase
