#pragma once
// The weight of a layer, plain or normalised, and the base of layers with weights.

#include <utility>

#include "../layers/module.hpp"

namespace polyphase {

/// A weight w: a tensor of its own; or w = g * v/||v|| with the norm taken over all dimensions but the first (Salimans and
/// Kingma, arXiv 1602.07868; PyTorch's weight_norm with dim=0); or w = W/sigma(W), sigma the largest singular value of W as a
/// matrix (size(0), rest), estimated by one step of power iteration (Miyato et al., arXiv 1802.05957; PyTorch's spectral_norm
/// with dim=0 and eps=1e-12).
class Weight {
 public:
  Weight() = default;
  explicit Weight(Tensor plain) : plain_(std::move(plain)) {}

  /// w, differentiable in what it is computed from. Under spectral norm, a step of power iteration comes first if `iterates`.
  /// If it is normalised, it has the dtype of an AutocastGuard, and under HeldWeights it is the held one.
  [[nodiscard]] Tensor get(bool iterates = false) const;
  [[nodiscard]] bool is_normalised() const { return v_.defined(); }
  /// v and g, which w is computed from under weight norm.
  [[nodiscard]] std::pair<Tensor, Tensor> normalised() const { return {v_, g_}; }
  [[nodiscard]] bool has_spectral_norm() const { return left_.defined(); }
  /// What w is computed from under spectral norm: W, and the estimates of its singular vectors, (size(0)) and (the rest).
  struct Spectrum {
    Tensor matrix, left, right;
  };
  [[nodiscard]] Spectrum spectrum() const { return {plain_, left_, right_}; }
  /// Splits w into g = ||w|| and v = w. Does nothing if already normalised.
  void normalise();
  /// Makes w = W/sigma(W), with singular vectors that start random. The weight must be plain.
  void normalise_spectrum();
  /// Folds w into one tensor, without power iteration. Does nothing if plain.
  void fold();
  /// Lists weight, bias; or bias, weight_g, weight_v; or bias, weight_orig and the buffers weight_u, weight_v: PyTorch's
  /// orders.
  void visit(Visitor& visitor, Tensor& bias);

 private:
  [[nodiscard]] Tensor over_spectrum(bool iterates) const;

  Tensor plain_;  // under spectral norm W
  Tensor g_;      // (size(0), 1, ...)
  Tensor v_;      // w's shape
  Tensor left_;   // (size(0)), estimate of the singular vector
  Tensor right_;  // (product of the other sizes)
};

/// Base of Conv1d, ConvTranspose1d and Linear: a weight and an optional bias.
class WeightedLayer : public Module {
 public:
  void visit(Visitor& visitor) override { weight_.visit(visitor, bias_); }
  /// The weight that forward uses. In-place writes to it change the layer only if it is plain. Under spectral norm each call in
  /// training mode runs one step of power iteration, as each forward of PyTorch's does.
  [[nodiscard]] Tensor weight() const { return weight_.get(is_training()); }
  /// Undefined if the layer has none.
  [[nodiscard]] Tensor bias() const { return bias_; }
  /// Used by weight_norm(), spectral_norm() and what removes them.
  void normalise_weight() { weight_.normalise(); }
  void normalise_spectrum() { weight_.normalise_spectrum(); }
  void fold_weight() { weight_.fold(); }
  /// Used by HeldWeights.
  [[nodiscard]] const Weight& held_weight() const { return weight_; }
  [[nodiscard]] bool has_weight_norm() const { return weight_.is_normalised(); }
  [[nodiscard]] bool has_spectral_norm() const { return weight_.has_spectral_norm(); }

 protected:
  WeightedLayer() = default;
  /// PyTorch's initialisation, kaiming_uniform with a = sqrt(5): weight, then bias, uniform within +-1/sqrt(fan_in), where
  /// fan_in is the product of all sizes of `weight_shape` except the first. `bias_size` 0 means no bias.
  void initialise(const Shape& weight_shape, std::int64_t bias_size, const TensorOptions& options);

  Weight weight_;
  Tensor bias_;
};

}  // namespace polyphase
