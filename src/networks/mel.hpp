#pragma once
// The mel front ends of published vocoders, from their configurations.

#include <string>

#include "../layers/spectral/mel_spectrogram.hpp"

namespace polyphase {

/// HiFi-GAN's and BigVGAN's: audio (N, L) -> mel (N, num_mels, L/hop_size), of the keys n_fft, num_mels, sampling_rate,
/// hop_size, win_size, fmin (0 where absent) and fmax (half the sampling rate where absent or null). Throws FormatError naming
/// the entry that does not fit.
[[nodiscard]] MelSpectrogram hifigan_mel(const std::string& config);

/// Vocos': audio (N, L) -> mel (N, n_mels, frames), of feature_extractor.init_args with the keys sample_rate, n_fft,
/// hop_length, n_mels, padding ("center" or "same") and the original's defaults. Throws FormatError naming the entry that does
/// not fit, and where the features are not mels.
[[nodiscard]] MelSpectrogram vocos_mel(const std::string& config);

}  // namespace polyphase
