#pragma once
// Activation functions with PyTorch's meanings and defaults. All differentiable.

#include <span>

#include "../tensor/map_op.hpp"
#include "../tensor/tensor.hpp"

namespace polyphase {

[[nodiscard]] Tensor relu(const Tensor& x);
[[nodiscard]] Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
[[nodiscard]] Tensor elu(const Tensor& x, double alpha = 1.0);
/// Exact by default (erf); `approximate_tanh` gives PyTorch's approximate="tanh".
[[nodiscard]] Tensor gelu(const Tensor& x, bool approximate_tanh = false);
[[nodiscard]] Tensor silu(const Tensor& x);
[[nodiscard]] Tensor tanh(const Tensor& x);
[[nodiscard]] Tensor sigmoid(const Tensor& x);
[[nodiscard]] Tensor softplus(const Tensor& x);
/// a*sigmoid(b), where a and b are the two halves along dimension `dim` (Dauphin et al., arXiv 1612.08083). Throws ShapeError
/// unless its size is even.
[[nodiscard]] Tensor glu(const Tensor& x, int dim = -1);
/// x + sin(alpha*x)^2/alpha (Ziyin et al., arXiv 2006.08195). x (N, C, L) or (C, L); alpha (C).
[[nodiscard]] Tensor snake(const Tensor& x, const Tensor& alpha);
/// x + sin(alpha*x)^2/beta (BigVGAN, arXiv 2206.04658). x (N, C, L) or (C, L); alpha, beta (C).
[[nodiscard]] Tensor snake_beta(const Tensor& x, const Tensor& alpha, const Tensor& beta);
/// Zeroes elements with probability p in [0, 1) and scales the rest by 1/(1-p), drawing from the default generator; returns x
/// itself if not training.
[[nodiscard]] Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

/// activation((parts[0] + parts[1] + ...)/divisor) in one pass over memory where the device can, with the bits of add(), div()
/// and the activation one after another. At least one part, all of one shape, dtype and device; divisor: a value of that dtype.
/// activation: none, relu, or leaky_relu with a slope >= 0. Differentiable. Throws DTypeError for integers, Error without parts
/// or with another activation, ShapeError and DeviceError for parts that do not fit.
[[nodiscard]] Tensor average_of(std::span<const Tensor> parts, double divisor, Activation activation = Activation::none,
                                double slope = 0);

}  // namespace polyphase
