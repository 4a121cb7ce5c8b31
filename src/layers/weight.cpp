#include "layers/weight.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "layers/weight_norm.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/norm.hpp"
#include "ops/reduce.hpp"

namespace polyphase {
namespace {

Tensor norm_except_first(const Tensor& v) {
  std::vector<int> dims;
  for (int dim = 1; dim < v.rank(); ++dim) dims.push_back(dim);
  return norm(v, dims, /*keepdim=*/true);
}

// x/max(||x||, 1e-12), PyTorch's normalize().
Tensor unit(const Tensor& x) { return x / clamp(norm(x), 1e-12, std::numeric_limits<double>::infinity()); }

}  // namespace

Tensor Weight::get(bool iterates) const {
  if (Tensor held = HeldWeights::find(*this); held.defined()) return held;
  if (is_normalised()) return weight_norm_of(v_, g_, autocast_dtype());
  return has_spectral_norm() ? over_spectrum(iterates) : plain_;
}

// A weight of 16 bits is computed in f32 and rounded.
Tensor Weight::over_spectrum(bool iterates) const {
  const bool is_half = ops::is_half(plain_);
  const DType wide = is_half ? DType::f32 : plain_.dtype();
  const ops::SpectralNormInputs inputs{plain_.to(wide), left_.to(wide), right_.to(wide), iterates};
  const std::optional<DType> of_w = is_half ? plain_.dtype() : autocast_dtype();
  const Tensor w = ops::recorded_weight(ops::spectral_weights(std::span(&inputs, 1), of_w).front(), inputs.W);
  if (is_half && iterates) {
    const NoGradGuard no_grad;
    Tensor(left_).copy_(inputs.left);
    Tensor(right_).copy_(inputs.right);
  }
  return w;
}

void Weight::normalise() {
  if (is_normalised()) return;
  const NoGradGuard no_grad;
  const bool learned = plain_.requires_grad();
  Tensor g = norm_except_first(plain_.detach());
  Tensor v = plain_.detach().clone();
  g_ = g.set_requires_grad(learned);
  v_ = v.set_requires_grad(learned);
  plain_ = {};
}

void Weight::normalise_spectrum() {
  const NoGradGuard no_grad;
  const TensorOptions options{.dtype = plain_.dtype(), .device = plain_.device()};
  left_ = unit(Tensor::randn({plain_.size(0)}, options));
  right_ = unit(Tensor::randn({plain_.numel() / plain_.size(0)}, options));
}

void Weight::fold() {
  if (!is_normalised() && !has_spectral_norm()) return;
  const NoGradGuard no_grad;
  const AutocastGuard exact(std::nullopt);
  Tensor folded = get();
  const bool learned = is_normalised() ? v_.requires_grad() || g_.requires_grad() : plain_.requires_grad();
  plain_ = folded.set_requires_grad(learned);
  g_ = v_ = left_ = right_ = {};
}

void Weight::visit(Visitor& visitor, Tensor& bias) {
  const bool is_plain = plain_.defined() && !has_spectral_norm();
  if (is_plain) visitor.parameter("weight", plain_);
  if (bias.defined()) visitor.parameter("bias", bias);
  if (is_normalised()) {
    visitor.parameter("weight_g", g_);
    visitor.parameter("weight_v", v_);
  } else if (has_spectral_norm()) {
    visitor.parameter("weight_orig", plain_);
    visitor.buffer("weight_u", left_);
    visitor.buffer("weight_v", right_);
  }
}

void WeightedLayer::initialise(const Shape& weight_shape, std::int64_t bias_size, const TensorOptions& options) {
  std::int64_t fan_in = 1;
  for (int dim = 1; dim < weight_shape.rank(); ++dim) fan_in *= weight_shape[dim];
  // kaiming_uniform's bound is gain*sqrt(3/fan_in) with gain = sqrt(2/(1 + 5)).
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  Tensor weight = Tensor::uniform(weight_shape, -bound, bound, options);
  weight_ = Weight(weight.set_requires_grad(true));
  if (bias_size == 0) return;
  bias_ = Tensor::uniform({bias_size}, -bound, bound, options);
  bias_.set_requires_grad(true);
}

}  // namespace polyphase
