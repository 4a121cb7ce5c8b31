#pragma once
// Distances of one signal from another. Signals have equal length; full scale = 1.

#include <span>

namespace superres {

/// Signal-to-noise ratio in dB: 10 log10(sum r^2 / sum (r - y)^2). Infinite if both are equal; not finite if the reference is
/// silent.
[[nodiscard]] double snr(std::span<const float> reference, std::span<const float> output);

/// Scale-invariant signal-to-distortion ratio in dB (Le Roux et al., "SDR - half-baked or well done?", ICASSP 2019):
/// 10 log10(|a r|^2 / |a r - y|^2) with a = <y, r>/<r, r>. A louder or softer copy of the reference has no distortion.
[[nodiscard]] double si_sdr(std::span<const float> reference, std::span<const float> output);

/// Log-spectral distance, as in the papers on audio super-resolution (Kuleshov et al., arXiv 1708.00853): the mean over
/// frames of sqrt(mean over bins of (log10 R - log10 Y)^2), R and Y the power spectra |STFT|^2 with a Hann window of
/// kLsdWindow samples every kLsdHop, floored at kLsdFloor. One unit is a factor of 10 in power at every frequency.
/// Throws ShapeError on fewer than kLsdWindow/2 + 1 samples.
[[nodiscard]] double log_spectral_distance(std::span<const float> reference, std::span<const float> output);

inline constexpr int kLsdWindow = 2048;
inline constexpr int kLsdHop = 512;
inline constexpr double kLsdFloor = 1e-8;

/// The three numbers of one output.
struct Scores {
  double snr = 0;
  double si_sdr = 0;
  double lsd = 0;
};
[[nodiscard]] Scores score(std::span<const float> reference, std::span<const float> output);
/// The mean of each number; zeros if there are none.
[[nodiscard]] Scores mean_of(std::span<const Scores> scores);

}  // namespace superres
