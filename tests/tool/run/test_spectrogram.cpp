#include "run/spectrogram.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"
#include "support/sound.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using namespace polyphase::tool;

TEST_CASE("a tone is the brightest row, at its height") {
  const Picture picture = spectrogram(sine(2000, 16000, 16000), 16000);
  REQUIRE(picture.width > 100);
  CHECK(picture.width <= 1600);
  CHECK(picture.points.size() == static_cast<std::size_t>(picture.width * picture.height));
  std::int64_t brightest = 0;
  const std::int64_t middle = picture.width / 2;
  const auto at = [&](std::int64_t y) { return picture.points[static_cast<std::size_t>(y * picture.width + middle)]; };
  for (std::int64_t y = 0; y < picture.height; ++y)
    if (at(y) > at(brightest)) brightest = y;
  CHECK(std::abs(static_cast<double>(brightest) / static_cast<double>(picture.height) - 0.75) < 0.02);
  CHECK(at(brightest) > 250);
  CHECK(at(2) < 60);
}

TEST_CASE("short, long and silent sound") {
  CHECK(spectrogram({0.5F}, 22050).height > 0);
  CHECK(spectrogram(noise(2000000), 48000).width <= 1600);
  CHECK(spectrogram(std::vector<float>(4000, 0.0F), 22050).points[0] == 255);
  CHECK(error_of<ShapeError>([] { return spectrogram({}, 22050); }).find("expected samples") != std::string::npos);
}
