#pragma once
// Losses between an output and a target of the same shape. All differentiable in both.

#include <cstdint>
#include <vector>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// How the elements' losses are combined.
enum class Reduction : std::uint8_t { mean, sum, none };

/// (input - target)^2. Throws ShapeError unless both shapes are equal (no broadcasting), DTypeError unless both have one
/// floating-point dtype. At most two kernels forward and one per gradient.
[[nodiscard]] Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// |input - target|; the gradient is 0 where they are equal. Throws like mse_loss.
[[nodiscard]] Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// d^2/(2*beta) if |d| < beta, else |d| - beta/2, with d = input - target; with beta 0 it is l1_loss. Throws like mse_loss, and
/// ShapeError unless beta >= 0.
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

/// The mean over the resolutions of the weighted sum of ||Y - X||_F/||Y||_F and the mean of |log Y - log X|, where X and Y are
/// the magnitudes sqrt(max(|STFT|^2, epsilon)) of input and target (Parallel WaveGAN, arXiv 1910.11480). Input and target (...,
/// L), f32 or f64. Throws ShapeError unless both shapes are equal and every n_fft/2 is below L.
[[nodiscard]] Tensor multi_resolution_stft_loss(const Tensor& input, const Tensor& target,
                                                const MultiResolutionStftOptions& options = {});

}  // namespace polyphase
