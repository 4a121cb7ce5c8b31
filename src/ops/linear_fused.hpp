#pragma once
// A matrix product with the layer norm before it and the elementwise functions after it.

#include <optional>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// What linear_fused() computes around its product. By default nothing.
struct LinearFusion {
  /// With an epsilon the product reads layer_norm(x, norm_weight, norm_bias, *norm_epsilon).
  std::optional<double> norm_epsilon{};
  Tensor norm_weight{}, norm_bias{};  ///< (in); may be undefined
  bool has_gelu = false;              ///< gelu() of the product
  Tensor scale{};                     ///< (out), which multiplies; may be undefined
  Tensor residual{};                  ///< of the result's shape, which is added; may be undefined
};
/// x (..., in) -> (..., out) = residual + scale*gelu(linear(layer_norm(x), weight, bias)), with weight (out, in), bias (out) or
/// undefined. Differentiable. On an NVIDIA GPU up to 8 rows of f32, f16 or bf16 are one kernel while no gradients are recorded,
/// which sums in f32 and rounds once after the norm and once at the end; else the functions are called one after another.
/// Throws ShapeError, DTypeError and DeviceError as they do, and ShapeError if the residual has not the result's shape.
[[nodiscard]] Tensor linear_fused(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearFusion& fusion);

}  // namespace polyphase
