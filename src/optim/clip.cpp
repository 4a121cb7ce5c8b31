#include "optim/clip.hpp"

#include <cmath>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

double clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm, const ClipOptions& options) {
  require<ShapeError>(max_norm > 0, "clip_grad_norm: expected max_norm > 0, got ", max_norm);
  const NoGradGuard no_grad;
  std::vector<Tensor> norms;  // one element each, joined so that the device is waited for once
  for (const Tensor& parameter : parameters) {
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    Tensor one = norm(grad).to(DType::f64).reshape({1});
    if (!norms.empty()) one = one.to(norms.front().device());
    norms.push_back(one);
  }
  if (norms.empty()) return 0;
  const double total = norm(cat(norms)).item();
  require<Error>(!options.error_if_nonfinite || std::isfinite(total), "clip_grad_norm: the norm of the gradients is ", total);
  const double scale = max_norm / (total + 1e-6);
  if (scale >= 1) return total;
  for (const Tensor& parameter : parameters) {
    const Tensor grad = parameter.grad();
    if (grad.defined()) parameter.set_grad(mul(grad, scale));
  }
  return total;
}

}  // namespace polyphase
