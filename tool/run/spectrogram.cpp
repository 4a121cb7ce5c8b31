#include "run/spectrogram.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/no_grad.hpp"
#include "ops/spectral.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::tool {
namespace {

constexpr std::int64_t kWidth = 1600, kHeight = 512;
constexpr double kWindowSeconds = 0.046;
constexpr double kRange = 90;  // dB

// A palette from black through violet and orange to light yellow, in equal steps of brightness.
constexpr Color kStops[] = {{0, 0, 4},     {29, 17, 71},   {81, 18, 124},   {131, 38, 129}, {183, 55, 121},
                            {231, 82, 99}, {252, 137, 97}, {254, 196, 136}, {252, 253, 191}};

std::array<Color, 256> palette() {
  std::array<Color, 256> colors{};
  constexpr double kSteps = std::size(kStops) - 1;
  for (std::size_t i = 0; i < colors.size(); ++i) {
    const double place = static_cast<double>(i) / 255 * kSteps;
    const auto stop = std::min(static_cast<std::size_t>(place), std::size(kStops) - 2);
    const double share = place - static_cast<double>(stop);
    const auto mixed = [&](std::uint8_t from, std::uint8_t to) {
      return static_cast<std::uint8_t>(std::lround(from + share * (to - from)));
    };
    const Color &a = kStops[stop], &b = kStops[stop + 1];
    colors[i] = {mixed(a.red, b.red), mixed(a.green, b.green), mixed(a.blue, b.blue)};
  }
  return colors;
}

}  // namespace

Picture spectrogram(const std::vector<float>& signal, std::int64_t rate) {
  require<ShapeError>(!signal.empty() && rate >= 1, "spectrogram: expected samples and a rate, got ", signal.size(), " and ",
                      rate);
  const NoGradGuard no_grad;
  const auto samples = static_cast<std::int64_t>(signal.size());
  std::int64_t window = 1;
  while (window < static_cast<std::int64_t>(kWindowSeconds * static_cast<double>(rate)) && window < 2 * kHeight) window *= 2;
  window = std::max<std::int64_t>(window, 16);
  const std::int64_t hop = std::max<std::int64_t>(samples / kWidth + 1, window / 8);
  std::vector<float> padded(signal);
  padded.resize(std::max(signal.size(), static_cast<std::size_t>(window)));
  const Tensor power =
      power_spectrogram(Tensor::from_vector(padded), {.n_fft = window, .hop_length = hop, .win_length = window});
  const std::int64_t frames = std::min(power.size(0), kWidth), bins = power.size(1);
  const std::vector<float> values = power.to_vector<float>();
  const auto decibels = [&](std::int64_t frame, std::int64_t bin) {
    return 10 * std::log10(static_cast<double>(values[static_cast<std::size_t>(frame * bins + bin)]) + 1e-14);
  };
  double loudest = -1000;
  for (std::int64_t frame = 0; frame < frames; ++frame)
    for (std::int64_t bin = 0; bin < bins; ++bin) loudest = std::max(loudest, decibels(frame, bin));
  Picture picture{.width = frames, .height = std::min(bins, kHeight), .palette = palette(), .points = {}};
  for (std::int64_t y = 0; y < picture.height; ++y) {
    const std::int64_t bin = (picture.height - 1 - y) * bins / picture.height;
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      const double level = std::clamp(1 + (decibels(frame, bin) - loudest) / kRange, 0.0, 1.0);
      picture.points.push_back(static_cast<std::uint8_t>(std::lround(255 * level)));
    }
  }
  return picture;
}

}  // namespace polyphase::tool
