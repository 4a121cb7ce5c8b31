#pragma once
// The logarithm of a mel spectrogram, as vocoders take it. Differentiable.

#include "../../layers/module.hpp"
#include "../../layers/spectral/mel_filters.hpp"

namespace polyphase {

/// (..., L) -> (..., n_mels, frames): log(max(filters * |STFT|, clip)), the magnitude sqrt(re^2 + im^2 + power_floor), Hann's
/// window. f16 and bf16 are computed in f32, whatever AutocastGuard there is. Buffer: mel_basis (n_mels, n_fft/2 + 1). The
/// defaults are HiFi-GAN's and BigVGAN's (jik876/hifi-gan@4769534:meldataset.py); Vocos' are .mel = {.scale = MelScale::htk,
/// .is_normalized = false}, .padding = center, .power_floor = 0, .clip = 1e-7
/// (`gemelo-ai/vocos@c859e3b:vocos/feature_extractors.py`). networks/mel.hpp reads either's configuration.
class MelSpectrogram : public Module {
 public:
  enum class Padding : std::uint8_t {
    same,    ///< reflects (n_fft - hop_length)/2 samples, rounded down, at both ends: frames = L/hop_length rounded down
    center,  ///< reflects n_fft/2: frames = L/hop_length + 1
  };
  struct Options {
    MelOptions mel{};  ///< n_fft, too
    std::int64_t hop_length = 256;
    std::int64_t win_length = 0;  ///< 0: n_fft
    Padding padding = Padding::same;
    double power_floor = 1e-9;
    double clip = 1e-5;
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws what mel_filters() throws, ShapeError where hop_length or win_length are not in [1, n_fft] or clip is not above 0,
  /// DTypeError unless the dtype is a floating-point one.
  explicit MelSpectrogram(const Options& options);
  void visit(Visitor& visitor) override { visitor.buffer("mel_basis", mel_basis_); }
  /// Throws ShapeError where L is too short to be reflected.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  Options options_;
  Tensor mel_basis_;  // (n_mels, n_fft/2 + 1)
};

}  // namespace polyphase
