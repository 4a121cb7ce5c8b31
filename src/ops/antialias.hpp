#pragma once
// An activation at twice the sampling rate, so that its harmonics do not alias (BigVGAN, arXiv 2206.04658). Differentiable;
// f32, f64, f16 and bf16.

#include <functional>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// Kaiser-windowed sinc low-pass (kernel_size) whose taps sum to 1. `cutoff` and `half_width`, half the width of the
/// transition, are in cycles per sample. With K = kernel_size and the attenuation A = 2.285 (K/2 - 1) pi 4 half_width + 7.95 in
/// dB, the window's beta is 0.1102 (A - 8.7) for A > 50 dB, 0.5842 (A - 21)^0.4 + 0.07886 (A - 21) for A >= 21 dB, else 0. The
/// taps are
///   2 cutoff window[i] sinc(2 cutoff (i - (K - 1)/2)),   sinc(x) = sin(pi x)/(pi x),
/// divided by their sum; K/2 is rounded down. A cutoff of 0 gives zeros.
/// Source: NVIDIA/BigVGAN@7d2b454:alias_free_activation/torch/filter.py. Computed in f64, rounded to the dtype. Throws
/// ShapeError unless kernel_size >= 1, 0 <= cutoff <= 0.5 and half_width >= 0 are finite, DTypeError unless floating point.
[[nodiscard]] Tensor kaiser_sinc_filter(double cutoff, double half_width, std::int64_t kernel_size,
                                        const TensorOptions& options = {});

/// (..., L) -> (..., 2L): y[t] = 2 sum over all i of filter[t + K/2 - 1 - 2i] x[clamp(i, 0, L - 1)]. filter (K) or (1, 1, K)
/// with K even, the same for all rows. Throws ShapeError unless L >= 1, DTypeError unless x and filter have one floating-point
/// dtype.
[[nodiscard]] Tensor antialias_up2(const Tensor& x, const Tensor& filter);
/// (..., L) -> (..., ceil(L/2)): y[t] = sum over k of filter[k] x[clamp(2t + k - (K/2 - 1), 0, L - 1)]. As antialias_up2().
[[nodiscard]] Tensor antialias_down2(const Tensor& x, const Tensor& filter);
/// antialias_down2(activation(antialias_up2(x, up)), down): x of any shape (..., L) that the activation takes -> (..., L).
[[nodiscard]] Tensor antialias(const Tensor& x, const std::function<Tensor(const Tensor&)>& activation, const Tensor& up,
                               const Tensor& down);

/// antialias() with snake_beta(y, alpha, beta) as the activation. If the filters have 12 taps and do not require gradients, it
/// is one pass over memory forward and one backward; 16-bit types are computed in f32 and rounded once. x (N, C, L) or (C, L),
/// alpha and beta (C). Under an AutocastGuard x is cast to its dtype. Throws ShapeError, and DTypeError if dtypes differ
/// without a guard.
[[nodiscard]] Tensor antialias_snake(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& up,
                                     const Tensor& down);

}  // namespace polyphase
