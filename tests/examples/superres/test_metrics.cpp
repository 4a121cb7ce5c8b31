#include "metrics.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "sound.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"
#include "tensor/error.hpp"

using namespace superres;
using namespace superres::testing;
using polyphase::testing::error_of;
using polyphase::testing::kFloatSum;

TEST_CASE("SNR by hand") {
  const std::vector<float> r{3, 4};
  CHECK(snr(r, std::vector<float>{3, 3.5F}) == doctest::Approx(20));  // 25 over 0.25
  CHECK(snr(r, std::vector<float>{0, 0}) == doctest::Approx(0));
  CHECK(snr(r, r) == std::numeric_limits<double>::infinity());
}

TEST_CASE("SI-SDR by hand: the part along the reference over the rest") {
  const std::vector<float> r{1, 0};
  CHECK(si_sdr(r, std::vector<float>{2, 0.2F}) == doctest::Approx(20));  // 4 over 0.04, whatever the gain
  CHECK(si_sdr(r, std::vector<float>{0.5F, 0.05F}) == doctest::Approx(20));
}

TEST_CASE("log-spectral distance: a tenth of the amplitude is 2, nothing against full-scale noise is the floor's") {
  const std::vector<float> r = noise(16000, 3, 0.9);
  std::vector<float> soft = r;
  for (float& sample : soft) sample *= 0.1F;
  CHECK(log_spectral_distance(r, soft) == doctest::Approx(2).epsilon(kFloatSum));
  CHECK(log_spectral_distance(r, r) == 0);
  // White noise of power s^2 has E|STFT|^2 = s^2 * sum of window^2 = s^2 * 768; its log10 lies 0.2507 below that on average.
  const std::vector<float> silence(16000, 0.0F);
  const double level = std::log10(0.27 * 0.375 * kLsdWindow) - 0.2507 - std::log10(kLsdFloor);
  CHECK(log_spectral_distance(r, silence) == doctest::Approx(level).epsilon(0.01));
}

TEST_CASE("scores refuse signals that do not fit") {
  const std::vector<float> r(3000, 0.5F);
  const std::vector<float> y(2999, 0.5F);
  CHECK(error_of<polyphase::ShapeError>([&] { return score(r, y); }) == "score: expected an output of 3000 samples, got 2999");
  CHECK(error_of<polyphase::ShapeError>([&] {
          return log_spectral_distance(std::span(r).first(500), std::span(r).first(500));
        }).find("power_spectrogram: expected x (..., L >= 1025)") == 0);
}

TEST_CASE("means") {
  const std::vector<Scores> scores{{1, 2, 3}, {3, 4, 5}};
  const Scores mean = mean_of(scores);
  CHECK(mean.snr == 2);
  CHECK(mean.si_sdr == 3);
  CHECK(mean.lsd == 4);
}
