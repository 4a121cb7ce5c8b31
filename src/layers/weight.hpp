#pragma once
// The weight of a layer, plain or weight-normalised, and the base of layers with weights.

#include "../layers/module.hpp"

namespace polyphase {

/// g * v/||v||, the norm taken over all dimensions but the first: v (n, ...), g (n, 1, ...) -> (n, ...). Differentiable.
[[nodiscard]] Tensor fold_weight_norm(const Tensor& g, const Tensor& v);

/// A weight w: a tensor of its own, or w = g * v/||v|| with the norm taken over all dimensions but the first
/// (Salimans and Kingma, arXiv 1602.07868; PyTorch's weight_norm with dim=0).
class Weight {
 public:
  Weight() = default;
  explicit Weight(Tensor plain) : plain_(std::move(plain)) {}

  /// w. If normalised, computed from g and v, and differentiable in both.
  [[nodiscard]] Tensor get() const;
  [[nodiscard]] bool is_normalised() const { return v_.defined(); }
  /// Splits w into g = ||w|| and v = w. Does nothing if already normalised.
  void normalise();
  /// Folds g * v/||v|| into one tensor. Does nothing if plain.
  void fold();
  /// Lists weight, bias; or bias, weight_g, weight_v: PyTorch's orders.
  void visit(Visitor& visitor, Tensor& bias);

 private:
  Tensor plain_;
  Tensor g_;  // (size(0), 1, ...)
  Tensor v_;  // w's shape
};

/// Base of Conv1d, ConvTranspose1d and Linear: a weight and an optional bias.
class WeightedLayer : public Module {
 public:
  void visit(Visitor& visitor) override { weight_.visit(visitor, bias_); }
  /// The weight that forward uses. In-place writes to it change the layer only if it is not weight-normalised.
  [[nodiscard]] Tensor weight() const { return weight_.get(); }
  /// Undefined if the layer has none.
  [[nodiscard]] Tensor bias() const { return bias_; }
  /// Used by weight_norm() and remove_weight_norm().
  void normalise_weight() { weight_.normalise(); }
  void fold_weight() { weight_.fold(); }
  [[nodiscard]] bool has_weight_norm() const { return weight_.is_normalised(); }

 protected:
  WeightedLayer() = default;
  /// PyTorch's initialisation, kaiming_uniform with a = sqrt(5): weight, then bias, uniform within +-1/sqrt(fan_in), where
  /// fan_in is the product of all sizes of `weight_shape` except the first. `bias_size` 0 means no bias.
  void initialise(const Shape& weight_shape, std::int64_t bias_size, const TensorOptions& options);

  Weight weight_;
  Tensor bias_;
};

}  // namespace polyphase
