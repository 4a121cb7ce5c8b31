#pragma once
// Short-time Fourier transform. Differentiable; f32 and f64.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// Periodic Hann window of `length`; of length 1 it is 1, as in PyTorch.
[[nodiscard]] Tensor hann_window(std::int64_t length, const TensorOptions& options = {});
/// Real DFT of the last dimension: (..., n) -> (..., n/2 + 1, 2), n even; the last dimension holds real and imaginary part.
[[nodiscard]] Tensor rfft(const Tensor& x);
/// The inverse of rfft(): (..., n/2 + 1, 2) -> (..., n). The imaginary parts of the first and the last bin do not count, as in
/// PyTorch. Throws ShapeError unless there are at least two bins.
[[nodiscard]] Tensor irfft(const Tensor& spectrum);
/// Frames laid over one another every `step` positions and summed, the adjoint of Tensor::unfold:
/// (..., frames >= 1, size) -> (..., (frames - 1)*step + size). Any dtype but i64; the sum at a position is in the order of
/// frames. Throws ShapeError.
[[nodiscard]] Tensor overlap_add(const Tensor& frames, std::int64_t step);

struct StftOptions {
  std::int64_t n_fft = 1024;
  std::int64_t hop_length = 256;
  std::int64_t win_length = 1024;  ///< <= n_fft; the window is centred in the frame
  bool center = true;              ///< reflect-pads n_fft/2 on both ends, as PyTorch does
};
/// STFT: x (..., L) -> (..., frames, n_fft/2 + 1, 2), real and imaginary part. `window` (win_length), Hann's unless given.
/// Throws ShapeError, DTypeError and DeviceError where the operands do not go together.
[[nodiscard]] Tensor stft(const Tensor& x, const StftOptions& options = {}, const Tensor& window = {});

/// Which samples istft() returns of those that its frames cover.
enum class IstftPadding : std::uint8_t {
  center,  ///< without n_fft/2 at both ends: (frames - 1)*hop_length, what stft() with `center` was given, as torch.istft
  same,    ///< without (n_fft - hop_length)/2, rounded down, at both ends: frames*hop_length where that is whole
};
struct IstftOptions {
  std::int64_t n_fft = 1024;
  std::int64_t hop_length = 256;
  std::int64_t win_length = 1024;  ///< <= n_fft; the window is centred in the frame
  IstftPadding padding = IstftPadding::center;
};
/// The inverse of stft(): spectrum (..., frames >= 1, n_fft/2 + 1, 2) -> (..., samples). Each frame is transformed back and
/// multiplied by the window, frames are overlap-added, and each sample is divided by its sum of squared windows (Griffin and
/// Lim 1984; "same" as `gemelo-ai/vocos@c859e3b:vocos/spectral_ops.py`). `window` (win_length), Hann's unless given. Throws
/// ShapeError where the operands do not go together, and on the CPU where a sum of squared windows is below 1e-11; on a GPU
/// such a sample is no number.
[[nodiscard]] Tensor istft(const Tensor& spectrum, const IstftOptions& options = {}, const Tensor& window = {});
/// How many samples istft() drops at each end.
[[nodiscard]] std::int64_t istft_cut(const IstftOptions& options);
/// `length` samples from number `begin` on of all (frames - 1)*hop_length + n_fft that the frames cover, nothing dropped: for
/// streams. On the CPU a sample has the same bits whatever frames that do not reach it are there. As istft().
[[nodiscard]] Tensor istft_part(const Tensor& spectrum, const IstftOptions& options, const Tensor& window, std::int64_t begin,
                                std::int64_t length);
/// Power |STFT|^2 with a Hann window: x (..., L) -> (..., frames, n_fft/2 + 1).
[[nodiscard]] Tensor power_spectrogram(const Tensor& x, const StftOptions& options = {});

}  // namespace polyphase
