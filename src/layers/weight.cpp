#include "layers/weight.hpp"

#include <cmath>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"

namespace polyphase {
namespace {

Tensor norm_except_first(const Tensor& v) {
  std::vector<int> dims;
  for (int dim = 1; dim < v.rank(); ++dim) dims.push_back(dim);
  return norm(v, dims, /*keepdim=*/true);
}

}  // namespace

Tensor fold_weight_norm(const Tensor& g, const Tensor& v) { return v * (g / norm_except_first(v)); }

Tensor Weight::get() const { return is_normalised() ? fold_weight_norm(g_, v_) : plain_; }

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

void Weight::fold() {
  if (!is_normalised()) return;
  const NoGradGuard no_grad;
  Tensor folded = get();
  plain_ = folded.set_requires_grad(v_.requires_grad() || g_.requires_grad());
  g_ = {};
  v_ = {};
}

void Weight::visit(Visitor& visitor, Tensor& bias) {
  if (plain_.defined()) visitor.parameter("weight", plain_);
  if (bias.defined()) visitor.parameter("bias", bias);
  if (!is_normalised()) return;
  visitor.parameter("weight_g", g_);
  visitor.parameter("weight_v", v_);
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
