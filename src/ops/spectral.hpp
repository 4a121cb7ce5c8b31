#pragma once
// Short-time Fourier transform. Differentiable; f32 and f64.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// Periodic Hann window of `length`; of length 1 it is 1, as in PyTorch.
[[nodiscard]] Tensor hann_window(std::int64_t length, const TensorOptions& options = {});
/// Real DFT of the last dimension: (..., n) -> (..., n/2 + 1, 2), n even; the last dimension holds real and imaginary part.
[[nodiscard]] Tensor rfft(const Tensor& x);

struct StftOptions {
  std::int64_t n_fft = 1024;
  std::int64_t hop_length = 256;
  std::int64_t win_length = 1024;  ///< <= n_fft; the window is centred in the frame
  bool center = true;              ///< reflect-pads n_fft/2 on both ends, as PyTorch does
};
/// Power |STFT|^2 with a Hann window: x (..., L) -> (..., frames, n_fft/2 + 1).
[[nodiscard]] Tensor power_spectrogram(const Tensor& x, const StftOptions& options = {});

}  // namespace polyphase
