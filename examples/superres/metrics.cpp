#include "metrics.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/no_grad.hpp"
#include "ops/spectral.hpp"
#include "tensor/error.hpp"
#include "tensor/tensor.hpp"

namespace superres {
namespace {

namespace pp = polyphase;

void require_equal_lengths(std::span<const float> reference, std::span<const float> output) {
  pp::require<pp::ShapeError>(reference.size() == output.size(), "score: expected an output of ", reference.size(),
                              " samples, got ", output.size());
}

double decibels(double signal, double noise) { return 10 * std::log10(signal / noise); }

// (frames, bins)
std::vector<float> power_of(std::span<const float> signal) {
  const pp::Tensor x = pp::Tensor::from_vector(std::vector<float>(signal.begin(), signal.end()));
  return pp::power_spectrogram(x, {.n_fft = kLsdWindow, .hop_length = kLsdHop, .win_length = kLsdWindow}).to_vector<float>();
}

}  // namespace

double snr(std::span<const float> reference, std::span<const float> output) {
  require_equal_lengths(reference, output);
  double signal = 0;
  double noise = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double r = reference[i];
    const double d = r - output[i];
    signal += r * r;
    noise += d * d;
  }
  return decibels(signal, noise);
}

double si_sdr(std::span<const float> reference, std::span<const float> output) {
  require_equal_lengths(reference, output);
  double rr = 0;
  double ry = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    rr += static_cast<double>(reference[i]) * reference[i];
    ry += static_cast<double>(reference[i]) * output[i];
  }
  const double scale = rr > 0 ? ry / rr : 0;
  double noise = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double d = scale * reference[i] - output[i];
    noise += d * d;
  }
  return decibels(scale * scale * rr, noise);
}

double log_spectral_distance(std::span<const float> reference, std::span<const float> output) {
  require_equal_lengths(reference, output);
  const pp::NoGradGuard no_grad;
  const std::vector<float> r = power_of(reference);
  const std::vector<float> y = power_of(output);
  constexpr std::size_t kBins = kLsdWindow / 2 + 1;
  const std::size_t frames = r.size() / kBins;
  const auto log_power = [](float power) { return std::log10(std::max(static_cast<double>(power), kLsdFloor)); };
  double total = 0;
  for (std::size_t frame = 0; frame < frames; ++frame) {
    double squares = 0;
    for (std::size_t i = frame * kBins; i < (frame + 1) * kBins; ++i) {
      const double d = log_power(r[i]) - log_power(y[i]);
      squares += d * d;
    }
    total += std::sqrt(squares / kBins);
  }
  return total / static_cast<double>(frames);
}

Scores score(std::span<const float> reference, std::span<const float> output) {
  return {snr(reference, output), si_sdr(reference, output), log_spectral_distance(reference, output)};
}

Scores mean_of(std::span<const Scores> scores) {
  Scores mean;
  const auto count = static_cast<double>(std::max<std::size_t>(scores.size(), 1));
  for (const Scores& one : scores) {
    mean.snr += one.snr / count;
    mean.si_sdr += one.si_sdr / count;
    mean.lsd += one.lsd / count;
  }
  return mean;
}

}  // namespace superres
