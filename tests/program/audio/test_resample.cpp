#include "program/audio/resample.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cmath>
#include <numbers>

#include "support/helpers.hpp"
#include "support/sound.hpp"
#include "support/tolerance.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::program;
using namespace polyphase::testing;

namespace {

// Gain in dB of a kernel at a frequency, relative to the Nyquist frequency of the lower rate.
double gain(const std::vector<double>& kernel, std::int64_t widest, double frequency, double dc) {
  double re = 0;
  double im = 0;
  for (std::size_t n = 0; n < kernel.size(); ++n) {
    const double angle = std::numbers::pi * frequency * static_cast<double>(n) / static_cast<double>(widest);
    re += kernel[n] * std::cos(angle);
    im += kernel[n] * std::sin(angle);
  }
  return 20 * std::log10(std::hypot(re, im) / dc);
}

}  // namespace

TEST_CASE("Kaiser's beta") {
  CHECK(kaiser_beta(80) == doctest::Approx(7.857).epsilon(1e-4));  // 0.1102*(80 - 8.7)
  CHECK(kaiser_beta(30) == doctest::Approx(2.117).epsilon(1e-3));
  CHECK(kaiser_beta(20) == 0);
}

TEST_CASE("the anti-alias filter is flat where it passes and down 80 dB where it stops") {
  for (const int factor : {2, 4, 8}) {
    const std::vector<double> kernel = lowpass_kernel(1, factor, kAntiAlias);
    REQUIRE(kernel.size() == static_cast<std::size_t>(2 * 48 * factor + 1));
    for (double f = 0; f <= 0.88; f += 0.01) CHECK(std::abs(gain(kernel, factor, f, 1)) < 0.002);
    CHECK(gain(kernel, factor, 0.94, 1) == doctest::Approx(-6.02).epsilon(0.01));
    for (double f = 1.0; f <= factor; f += 0.01) CHECK(gain(kernel, factor, f, 1) < -79);
  }
}

TEST_CASE("a sine below the cutoff is unchanged, one above is removed") {
  const std::vector<float> in = sine(1000, 16000, 16000);
  const std::vector<float> low = resample(in, 1, 4);
  const std::vector<float> wanted = sine(1000, 4000, 4000);
  REQUIRE(low.size() == 4000);
  for (std::size_t i = 100; i < 3900; ++i) CHECK(std::abs(low[i] - wanted[i]) < 1e-4);
  CHECK(rms(resample(sine(2300, 16000, 16000), 1, 4), 100, 3900) < 1e-4);
}

TEST_CASE("44100 Hz to 16000 Hz and back") {
  const std::vector<float> up = sine(3000, 44100, 44100);
  const std::vector<float> down = resample(up, 16000, 44100);
  REQUIRE(down.size() == 16000);
  const std::vector<float> wanted = sine(3000, 16000, 16000);
  for (std::size_t i = 200; i < 15800; ++i) CHECK(std::abs(down[i] - wanted[i]) < 1e-4);
  const std::vector<float> again = resample(down, 44100, 16000);
  for (std::size_t i = 1000; i < 43000; ++i) CHECK(std::abs(again[i] - up[i]) < 2e-4);
}

TEST_CASE("interpolation keeps the given samples and rebuilds a sine between them") {
  const std::vector<float> low = sine(700, 4000, 2000);
  const std::vector<float> sinc = interpolate_sinc(low, 4);
  const std::vector<float> wanted = sine(700, 16000, 8000);
  REQUIRE(sinc.size() == 8000);
  for (std::size_t i = 0; i < 2000; ++i) CHECK(std::abs(sinc[4 * i] - low[i]) < 1e-4);
  for (std::size_t i = 400; i < 7600; ++i) CHECK(std::abs(sinc[i] - wanted[i]) < 2e-4);

  const std::vector<float> line{0, 1, 3};
  CHECK(interpolate_linear(line, 2) == std::vector<float>{0, 0.5F, 1, 2, 3, 3});
}

TEST_CASE("the bits do not depend on the blocks") {
  const std::vector<float> in = noise(5000);
  for (const auto& [up, down] : {std::pair{3, 2}, std::pair{1, 4}, std::pair{4, 1}, std::pair{160, 441}}) {
    const std::vector<float> whole = resample(in, up, down);
    Resampler resampler(up, down);
    for (int round = 0; round < 2; ++round) {  // flush() resets it
      std::vector<float> pieces;
      std::size_t begin = 0;
      for (std::size_t size = 1; begin < in.size(); size = size * 3 % 1001 + 1) {
        const std::size_t end = std::min(begin + size, in.size());
        resampler.process(std::span(in).subspan(begin, end - begin), pieces);
        begin = end;
      }
      resampler.flush(pieces);
      CHECK(pieces == whole);
      CHECK(static_cast<std::int64_t>(whole.size()) == resampler.output_length(5000));
    }
  }
}

TEST_CASE("an impulse at either end is not moved") {
  std::vector<float> in(64, 0.0F);
  in[0] = in[63] = 1;
  const std::vector<float> out = resample(in, 4, 1, kInterpolation);
  CHECK(out[0] == doctest::Approx(1).epsilon(1e-3));
  CHECK(out[252] == doctest::Approx(1).epsilon(1e-3));
  CHECK(std::abs(out[4]) < 1e-3);
}

TEST_CASE("ratios that make no sense are refused") {
  CHECK(error_of<polyphase::ShapeError>([] { return Resampler(0, 1); }) ==
        "resample: expected up >= 1 and down >= 1, got 0 and 1");
  CHECK(error_of<polyphase::ShapeError>([] { return Resampler(1, 1000003); }) ==
        "resample: expected a ratio of numbers up to 192000, got 1/1000003");
  CHECK(resample({}, 1, 4).empty());
  const auto refused = [](int rate, int wanted) {
    return error_of<polyphase::Error>([&] { return require_convertible("a.wav", rate, wanted), 0; });
  };
  CHECK(refused(1, 4000) == "a.wav: expected a rate within 256 times 4000 Hz, up or down, got 1 Hz");
  CHECK(refused(1024004, 4000) == "a.wav: expected a rate within 256 times 4000 Hz, up or down, got 1024004 Hz");
  CHECK(refused(767999, 4000) ==
        "a.wav: expected a rate that can become 4000 Hz by a ratio of numbers up to 192000, got 767999 Hz");
  for (const auto& [rate, wanted] : {std::pair(16, 4000), std::pair(768000, 4000), std::pair(191999, 4000), std::pair(1, 256)})
    CHECK_NOTHROW(require_convertible("a.wav", rate, wanted));
}

TEST_CASE("a copy is a stream of its own") {
  const std::vector<float> in = noise(400);
  Resampler first(3, 2);
  std::vector<float> begun;
  first.process(std::span(in).first(200), begun);
  Resampler second(first);
  std::vector<float> output = begun;
  first.process(std::span(in).last(100), begun);
  second.process(std::span(in).last(200), output);
  second.flush(output);
  CHECK(output == resample(in, 3, 2));
}

TEST_CASE("copies share their filter") {
  const auto peak_kilobytes = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = peak_kilobytes();
  const std::vector<Resampler> copies(64, Resampler(4000, 31999));  // 12 MB, and 25 MB during construction
  CHECK(copies.size() == 64);
  CHECK(peak_kilobytes() - before < 200000);
}
