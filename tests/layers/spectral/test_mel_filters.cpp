#include "layers/spectral/mel_filters.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// Each filter from its corners in Hz, in f64.
std::vector<double> plain_filters(const MelOptions& options, const std::vector<double>& corners) {
  std::vector<double> out;
  for (std::size_t m = 0; m + 2 < corners.size(); ++m)
    for (std::int64_t bin = 0; bin <= options.n_fft / 2; ++bin) {
      const double f = static_cast<double>(bin * options.sample_rate) / static_cast<double>(options.n_fft);
      const double up = (f - corners[m]) / (corners[m + 1] - corners[m]),
                   down = (corners[m + 2] - f) / (corners[m + 2] - corners[m + 1]);
      const double norm = options.is_normalized ? 2 / (corners[m + 2] - corners[m]) : 1;
      out.push_back(norm * std::max(0.0, std::min(up, down)));
    }
  return out;
}

}  // namespace

TEST_CASE("Slaney's mel scale: 15 mel of 200/3 Hz, then 27 for a factor of 6.4") {
  // From 0 Hz to 6.4 kHz are 15 + 27 mel: with 41 filters the corners are whole numbers of mel.
  const MelOptions options{.sample_rate = 16000, .n_fft = 512, .n_mels = 41, .f_min = 0, .f_max = 6400};
  std::vector<double> corners;
  for (int mel = 0; mel <= 42; ++mel) corners.push_back(mel <= 15 ? 200.0 / 3 * mel : 1000 * std::pow(6.4, (mel - 15) / 27.0));
  const Tensor filters = mel_filters(options);
  CHECK(filters.shape() == Shape{41, 257});
  CHECK(filters.dtype() == DType::f32);
  CHECK(max_difference(filters, Tensor::from_vector(plain_filters(options, corners), {41, 257})) < kFloatRounding);
  MelOptions plain = options;
  plain.is_normalized = false;
  CHECK(max_difference(mel_filters(plain), Tensor::from_vector(plain_filters(plain, corners), {41, 257})) < kFloatRounding);
}

TEST_CASE("Slaney's numbers are rounded before and after the norm, as in librosa") {
  const MelOptions options{.sample_rate = 16000, .n_fft = 512, .n_mels = 41, .f_min = 0, .f_max = 6400};
  MelOptions plain = options;
  plain.is_normalized = false;
  const std::vector<float> normed = mel_filters(options).to_vector<float>(), before = mel_filters(plain).to_vector<float>();
  const double norm = 2 / (2 * 200.0 / 3);  // of the first filters
  for (std::size_t i = 0; i < 257; ++i) CHECK(std::abs(normed[i] - static_cast<float>(before[i] * norm)) <= 1e-7F * normed[i]);
}

TEST_CASE("HTK's mel scale: 2595 log10(1 + f/700), peaks of 1") {
  const MelOptions options{.sample_rate = 24000, .n_fft = 1024, .n_mels = 100, .scale = MelScale::htk, .is_normalized = false};
  const double top = 2595 * std::log10(1 + 12000.0 / 700);
  std::vector<double> corners;
  for (int i = 0; i <= 101; ++i) corners.push_back(700 * (std::pow(10, top * i / 101 / 2595) - 1));
  // Corners in f32 have errors of 1e-3 Hz; they are about 50 Hz apart.
  CHECK(max_difference(mel_filters(options), Tensor::from_vector(plain_filters(options, corners), {100, 513})) < kMelFloat);
  MelOptions normed = options;
  normed.is_normalized = true;
  CHECK(max_difference(mel_filters(normed), Tensor::from_vector(plain_filters(normed, corners), {100, 513})) < kMelFloat);
}

TEST_CASE("half the sample rate is where the filters end unless said") {
  const MelOptions options{.sample_rate = 8000, .n_fft = 64, .n_mels = 5};
  MelOptions same = options;
  same.f_max = 4000;
  CHECK(max_difference(mel_filters(options), mel_filters(same)) == 0);
  same.f_min = 100;
  CHECK(max_difference(mel_filters(options), mel_filters(same)) > 0);
}

TEST_CASE("filters that cannot be are refused in words") {
  const auto error = [](const MelOptions& options) { return error_of<ShapeError>([&] { return mel_filters(options); }); };
  CHECK(error({.n_fft = 7}) == "mel_filters: expected an even n_fft >= 2, got 7");
  CHECK(error({.n_mels = 0}) == "mel_filters: expected n_mels >= 1, got 0");
  CHECK(error({.sample_rate = 0}) == "mel_filters: expected sample_rate >= 1, got 0");
  CHECK(error({.f_min = 5000, .f_max = 4000}) == "mel_filters: expected 0 <= f_min < f_max, got 5000 and 4000");
  CHECK(error({.f_min = -1}).find("got -1") != std::string::npos);
}
