#include "program/audio/resample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "tensor/error.hpp"

namespace polyphase::program {
namespace {

// Ratios of larger numbers would need a filter of more than 75 MB; all ratios of two rates up to 192 kHz are allowed.
constexpr std::int64_t kLargestTerm = 192000;
// A larger ratio is probably an error, and its filter would be seconds long.
constexpr std::int64_t kLargestRatio = 256;

// Modified Bessel function of order 0, by its power series. libc++ has no std::cyl_bessel_i.
double bessel_i0(double x) {
  double sum = 1;
  double term = 1;
  for (int k = 1; term > 1e-17 * sum; ++k) {
    term *= (x / (2 * k)) * (x / (2 * k));
    sum += term;
  }
  return sum;
}

// Eight partial sums, so that the compiler can use vectors; their order is fixed.
float dot(const float* a, const float* b, std::int64_t count) {
  std::array<float, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int j = 0; j < 8; ++j) sums[static_cast<std::size_t>(j)] += a[i + j] * b[i + j];
  }
  float rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  for (const float sum : sums) rest += sum;
  return rest;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace

double kaiser_beta(double attenuation) {
  if (attenuation > 50) return 0.1102 * (attenuation - 8.7);
  if (attenuation < 21) return 0;
  return 0.5842 * std::pow(attenuation - 21, 0.4) + 0.07886 * (attenuation - 21);
}

std::vector<double> lowpass_kernel(std::int64_t up, std::int64_t down, const FilterOptions& options) {
  const std::int64_t widest = std::max(up, down);
  const std::int64_t half = options.zero_crossings * widest;
  const double beta = kaiser_beta(options.attenuation);
  std::vector<double> kernel(static_cast<std::size_t>(2 * half + 1));
  const double peak = bessel_i0(beta);
  double sum = 0;
  for (std::int64_t n = -half; n <= half; ++n) {
    const double t = static_cast<double>(n) / static_cast<double>(widest) * options.cutoff * std::numbers::pi;
    const double edge = static_cast<double>(n) / static_cast<double>(half);
    const double window = bessel_i0(beta * std::sqrt(std::max(0.0, 1 - edge * edge))) / peak;
    const double value = (n == 0 ? 1 : std::sin(t) / t) * window;
    kernel[static_cast<std::size_t>(n + half)] = value;
    sum += value;
  }
  for (double& value : kernel) value *= static_cast<double>(up) / sum;
  return kernel;
}

void require_convertible(const std::string& path, int rate, int wanted) {
  require<Error>(rate <= kLargestRatio * wanted && wanted <= kLargestRatio * rate, path, ": expected a rate within ",
                 kLargestRatio, " times ", wanted, " Hz, up or down, got ", rate, " Hz");
  const int common = std::gcd(rate, wanted);
  require<Error>(std::max(rate, wanted) / common <= kLargestTerm, path, ": expected a rate that can become ", wanted,
                 " Hz by a ratio of numbers up to ", kLargestTerm, ", got ", rate, " Hz");
}

Resampler::Resampler(std::int64_t up, std::int64_t down, const FilterOptions& options) {
  require<ShapeError>(up >= 1 && down >= 1, "resample: expected up >= 1 and down >= 1, got ", up, " and ", down);
  const std::int64_t common = std::gcd(up, down);
  up_ = up / common;
  down_ = down / common;
  require<ShapeError>(up_ <= kLargestTerm && down_ <= kLargestTerm, "resample: expected a ratio of numbers up to ",
                      kLargestTerm, ", got ", up_, "/", down_);
  const std::vector<double> kernel = lowpass_kernel(up_, down_, options);
  half_ = static_cast<std::int64_t>(kernel.size()) / 2;
  taps_ = 2 * half_ / up_ + 1;
  std::vector<float> phases(static_cast<std::size_t>(up_ * taps_), 0.0F);
  for (std::int64_t phase = 0; phase < up_; ++phase) {
    // The last input that affects an output at this phase is `last` kernel samples after it.
    const std::int64_t last = floor_divide(phase + half_, up_) * up_ - phase;
    for (std::int64_t j = 0; j < taps_; ++j) {
      const std::int64_t n = (taps_ - 1 - j) * up_ - last;
      if (n <= half_)
        phases[static_cast<std::size_t>(phase * taps_ + j)] = static_cast<float>(kernel[static_cast<std::size_t>(n + half_)]);
    }
  }
  phases_ = std::make_shared<const std::vector<float>>(std::move(phases));
  history_.assign(static_cast<std::size_t>(taps_), 0.0F);
  first_ = -taps_;
}

// Computes the outputs below number `outputs` that need no input from `received` on.
void Resampler::emit(std::int64_t received, std::int64_t outputs, std::vector<float>& output) {
  for (; produced_ < outputs; ++produced_) {
    const std::int64_t position = produced_ * down_;
    const std::int64_t last = floor_divide(position + half_, up_);
    if (last >= received) break;
    const float* input = history_.data() + (last - taps_ + 1 - first_);
    output.push_back(dot(input, phases_->data() + (position % up_) * taps_, taps_));
  }
  // Inputs that no later output needs are dropped once they are the larger part.
  const std::int64_t needed = floor_divide(produced_ * down_ + half_, up_) - taps_ + 1;
  const std::int64_t spare = std::min(needed - first_, static_cast<std::int64_t>(history_.size()));
  if (spare > static_cast<std::int64_t>(history_.size()) / 2) {
    history_.erase(history_.begin(), history_.begin() + spare);
    first_ += spare;
  }
}

void Resampler::process(std::span<const float> input, std::vector<float>& output) {
  history_.insert(history_.end(), input.begin(), input.end());
  received_ += static_cast<std::int64_t>(input.size());
  emit(received_, output_length(received_), output);
}

void Resampler::flush(std::vector<float>& output) {
  const std::int64_t silence = half_ / up_ + 1;
  history_.insert(history_.end(), static_cast<std::size_t>(silence), 0.0F);
  emit(received_ + silence, output_length(received_), output);
  history_.assign(static_cast<std::size_t>(taps_), 0.0F);
  first_ = -taps_;
  received_ = produced_ = 0;
}

std::vector<float> resample(std::span<const float> signal, std::int64_t up, std::int64_t down, const FilterOptions& options) {
  if (up == down) return {signal.begin(), signal.end()};
  Resampler resampler(up, down, options);
  std::vector<float> output;
  output.reserve(static_cast<std::size_t>(resampler.output_length(static_cast<std::int64_t>(signal.size()))));
  resampler.process(signal, output);
  resampler.flush(output);
  return output;
}

std::vector<float> interpolate_sinc(std::span<const float> low, int factor) { return resample(low, factor, 1, kInterpolation); }

std::vector<float> interpolate_linear(std::span<const float> low, int factor) {
  std::vector<float> output(low.size() * static_cast<std::size_t>(factor));
  for (std::size_t t = 0; t < output.size(); ++t) {
    const std::size_t i = t / static_cast<std::size_t>(factor);
    const float next = low[std::min(i + 1, low.size() - 1)];
    output[t] =
        low[i] + (next - low[i]) * static_cast<float>(t % static_cast<std::size_t>(factor)) / static_cast<float>(factor);
  }
  return output;
}

}  // namespace polyphase::program
