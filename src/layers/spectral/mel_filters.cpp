#include "layers/spectral/mel_filters.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace polyphase {
namespace {

// Slaney's scale (Auditory Toolbox 1998).
constexpr double kHzPerMel = 200.0 / 3;
constexpr double kLogFrom = 1000;
constexpr double kLogFromMel = kLogFrom / kHzPerMel;
const double kLogStep = std::log(6.4) / 27;

double slaney_mel(double hz) { return hz >= kLogFrom ? kLogFromMel + std::log(hz / kLogFrom) / kLogStep : hz / kHzPerMel; }
double slaney_hz(double mel) {
  return mel >= kLogFromMel ? kLogFrom * std::exp(kLogStep * (mel - kLogFromMel)) : kHzPerMel * mel;
}

// `count` numbers from first to last, as numpy.linspace.
std::vector<double> spaced(double first, double last, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  const double step = (last - first) / static_cast<double>(count - 1);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * step + first;
  values.back() = last;
  return values;
}

// The same in f32, from both ends, as torch.linspace.
std::vector<float> spaced_f32(float first, float last, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  const float step = (last - first) / static_cast<float>(count - 1);
  const auto half = static_cast<std::size_t>(count / 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = i < half ? first + step * static_cast<float>(i) : last - step * static_cast<float>(values.size() - 1 - i);
  return values;
}

struct Triangles {
  std::int64_t bins;
  std::vector<float> values;  // (n_mels, bins)
  float& at(std::size_t mel, std::size_t bin) { return values[mel * static_cast<std::size_t>(bins) + bin]; }
};

void fill_slaney(Triangles& out, const MelOptions& options, double f_max) {
  std::vector<double> corners = spaced(slaney_mel(options.f_min), slaney_mel(f_max), options.n_mels + 2);
  for (double& corner : corners) corner = slaney_hz(corner);
  const double resolution = 1.0 / (static_cast<double>(options.n_fft) * (1.0 / static_cast<double>(options.sample_rate)));
  for (std::size_t m = 0; m + 2 < corners.size(); ++m) {
    const double rise = corners[m + 1] - corners[m], fall = corners[m + 2] - corners[m + 1];
    const double norm = options.is_normalized ? 2.0 / (corners[m + 2] - corners[m]) : 1.0;
    for (std::size_t bin = 0; bin < static_cast<std::size_t>(out.bins); ++bin) {
      const double f = static_cast<double>(bin) * resolution;
      const double lower = -(corners[m] - f) / rise, upper = (corners[m + 2] - f) / fall;
      const auto weight = static_cast<float>(std::max(0.0, std::min(lower, upper)));
      out.at(m, bin) = static_cast<float>(static_cast<double>(weight) * norm);
    }
  }
}

void fill_htk(Triangles& out, const MelOptions& options, double f_max) {
  const auto mel = [](double hz) { return static_cast<float>(2595.0 * std::log10(1.0 + hz / 700.0)); };
  std::vector<float> corners = spaced_f32(mel(options.f_min), mel(f_max), options.n_mels + 2);
  for (float& corner : corners) corner = 700.0F * (static_cast<float>(std::pow(10.0, double{corner / 2595.0F})) - 1.0F);
  const std::vector<float> frequencies = spaced_f32(0, static_cast<float>(options.sample_rate / 2), out.bins);
  for (std::size_t m = 0; m + 2 < corners.size(); ++m) {
    const float rise = corners[m + 1] - corners[m], fall = corners[m + 2] - corners[m + 1];
    const float norm = options.is_normalized ? 2.0F / (corners[m + 2] - corners[m]) : 1.0F;
    for (std::size_t bin = 0; bin < frequencies.size(); ++bin) {
      const float lower = -(corners[m] - frequencies[bin]) / rise, upper = (corners[m + 2] - frequencies[bin]) / fall;
      out.at(m, bin) = std::max(0.0F, std::min(lower, upper)) * norm;
    }
  }
}

}  // namespace

Tensor mel_filters(const MelOptions& options) {
  static constexpr const char* kName = "mel_filters";
  require<ShapeError>(options.sample_rate >= 1, kName, ": expected sample_rate >= 1, got ", options.sample_rate);
  require<ShapeError>(options.n_fft >= 2 && options.n_fft % 2 == 0, kName, ": expected an even n_fft >= 2, got ",
                      options.n_fft);
  require<ShapeError>(options.n_mels >= 1, kName, ": expected n_mels >= 1, got ", options.n_mels);
  const bool is_htk = options.scale == MelScale::htk;
  const double half = is_htk ? static_cast<double>(options.sample_rate / 2) : static_cast<double>(options.sample_rate) / 2;
  const double f_max = options.f_max == 0 ? half : options.f_max;
  require<ShapeError>(options.f_min >= 0 && options.f_min < f_max && std::isfinite(f_max), kName,
                      ": expected 0 <= f_min < f_max, got ", options.f_min, " and ", f_max);
  Triangles out{options.n_fft / 2 + 1, {}};
  out.values.resize(static_cast<std::size_t>(options.n_mels * out.bins));
  is_htk ? fill_htk(out, options, f_max) : fill_slaney(out, options, f_max);
  return Tensor::from_vector(out.values, {options.n_mels, out.bins}, Device::cpu());
}

}  // namespace polyphase
