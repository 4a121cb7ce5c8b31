#pragma once
// Losses between an output and a target of the same shape. All differentiable in both.

#include <cstdint>
#include <vector>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// What becomes of the single elements' losses.
enum class Reduction : std::uint8_t { mean, sum, none };

/// (input - target)^2. Throws ShapeError unless both shapes are equal (nothing is broadcast), DTypeError unless both are of one
/// floating-point dtype. At most two kernels forward and one for each gradient.
[[nodiscard]] Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// |input - target|; gradient 0 where equal. Throws like mse_loss.
[[nodiscard]] Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// d^2/(2*beta) where |d| < beta, else |d| - beta/2, with d = input - target; beta 0 is l1_loss.
/// Throws like mse_loss, and ShapeError unless beta >= 0.
[[nodiscard]] Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta = 1.0,
                                    Reduction reduction = Reduction::mean);

/// One short-time Fourier transform, in samples.
struct StftResolution {
  std::int64_t n_fft = 1024;
  std::int64_t hop_length = 256;
  std::int64_t win_length = 1024;
};

struct MultiResolutionStftOptions {
  /// Parallel WaveGAN's three.
  std::vector<StftResolution> resolutions = {{1024, 120, 600}, {2048, 240, 1200}, {512, 50, 240}};
  double spectral_convergence_weight = 1;
  double log_magnitude_weight = 1;
  double epsilon = 1e-7;  ///< floor of the power spectrum, > 0
};

/// Mean over the resolutions of ||Y - X||_F/||Y||_F and of the mean |log Y - log X|, weighted, with X and Y the magnitudes
/// sqrt(max(|STFT|^2, epsilon)) of input and target (Parallel WaveGAN, arXiv 1910.11480). Input and target (..., L), f32 or
/// f64. Throws ShapeError unless both shapes are equal and every n_fft/2 is below L.
[[nodiscard]] Tensor multi_resolution_stft_loss(const Tensor& input, const Tensor& target,
                                                const MultiResolutionStftOptions& options = {});

}  // namespace polyphase
