#include "mixed_data.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>

#include "ops/elementwise.hpp"

namespace polyphase::bench {
namespace {

constexpr int kPositions = 2;  // the dimension of a source's positions

/// Multiplies `normal` by scale_of(i), where i is the index along `dim`.
Tensor scaled_along(const Tensor& normal, int dim, const std::function<double(std::int64_t)>& scale_of) {
  std::vector<float> scales;
  for (std::int64_t i = 0; i < normal.size(dim); ++i) scales.push_back(static_cast<float>(scale_of(i)));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(normal.rank()), 1);
  sizes[static_cast<std::size_t>(dim)] = normal.size(dim);
  return normal * Tensor::from_vector(scales, Shape(sizes), normal.device());
}

/// A kind that scales along one dimension, selected by `dim_of`; undefined if that dimension has fewer than two indices.
template <class DimOf, class ScaleOf>
MixedData along(const std::string& name, Changed changed, const DimOf& dim_of, const ScaleOf& scale_of,
                Mixed mixed = Mixed::between) {
  return {name, mixed, changed, [=](const Tensor& normal, const Dimensions& dimensions) {
            const int dim = dim_of(dimensions);
            if (dim < 0 || normal.size(dim) < 2) return Tensor();
            const std::int64_t size = normal.size(dim);
            return scaled_along(normal, dim, [&](std::int64_t i) { return scale_of(i, size); });
          }};
}

MixedData whole(const std::string& name, Changed changed, double scale) {
  return {name, Mixed::between, changed, [=](const Tensor& normal, const Dimensions&) { return normal * scale; }};
}

std::string power(int exponent) { return "1e" + std::to_string(exponent); }
double ten_to(int exponent) { return std::pow(10.0, exponent); }

int positions_of(const Dimensions&) { return kPositions; }
int samples_of(const Dimensions& dimensions) { return dimensions.sample; }
int input_channels_of(const Dimensions& dimensions) { return dimensions.input_channel; }
int output_channels_of(const Dimensions& dimensions) { return dimensions.output_channel; }

void add_halves_and_silence(std::vector<MixedData>& all) {
  for (const int exponent : {-2, -3, -4, -5, -10, -30, -40})
    all.push_back(along("half_" + power(exponent), Changed::source, positions_of,
                        [=](std::int64_t i, std::int64_t size) { return i < size / 2 ? 1.0 : ten_to(exponent); }));
  const auto stretches = [](double quiet) {
    constexpr std::int64_t kStretch = 2000;  // positions, no multiple of a tile's
    return [=](std::int64_t i, std::int64_t size) {
      const std::int64_t stretch = std::clamp<std::int64_t>(size / 4, 1, kStretch);
      return i / stretch % 2 == 0 ? 1.0 : quiet;
    };
  };
  all.push_back(along("silence_zeros", Changed::source, positions_of, stretches(0)));
  all.push_back(along("silence_1e-5", Changed::source, positions_of, stretches(1e-5)));
}

void add_channels_and_samples(std::vector<MixedData>& all) {
  all.push_back(along("channels_half_1e-5", Changed::source, input_channels_of,
                      [](std::int64_t i, std::int64_t size) { return i < size / 2 ? 1.0 : 1e-5; }));
  for (const int exponent : {-5, 5})
    all.push_back(along("channels_one_" + power(exponent), Changed::source, input_channels_of,
                        [=](std::int64_t i, std::int64_t size) { return i == size / 2 ? ten_to(exponent) : 1.0; }));
  for (const int exponent : {-5, -30})
    all.push_back(along("samples_half_" + power(exponent), Changed::source, samples_of,
                        [=](std::int64_t i, std::int64_t size) { return i < size / 2 ? 1.0 : ten_to(exponent); }));
}

void add_tensors(std::vector<MixedData>& all) {
  all.push_back(whole("source_1e-30", Changed::source, 1e-30));
  all.push_back(whole("denormals", Changed::source, 1e-40));
  for (const int exponent : {-3, -10, -20, -30})
    all.push_back(whole("weights_" + power(exponent), Changed::weights, ten_to(exponent)));
  const auto all_powers = [](std::int64_t i, std::int64_t) { return ten_to(-3 * static_cast<int>(i % 11)); };  // 1 ... 1e-30
  all.push_back(along("weights_by_output", Changed::weights, output_channels_of, all_powers));
  all.push_back(along("weights_by_input", Changed::weights, input_channels_of, all_powers));
}

/// Each channel of a sample is another part of the recording, which is repeated.
MixedData speech(const std::vector<float>& recording) {
  return {"speech", Mixed::between, Changed::source, [=](const Tensor& normal, const Dimensions&) {
            const std::int64_t channels = normal.size(1), length = normal.size(2);
            const auto size = static_cast<std::int64_t>(recording.size());
            constexpr std::int64_t kApart = 7919;
            std::vector<float> rows(static_cast<std::size_t>(channels * length));
            for (std::int64_t c = 0; c < channels; ++c)
              for (std::int64_t i = 0; i < length; ++i)
                rows[static_cast<std::size_t>(c * length + i)] = recording[static_cast<std::size_t>((c * kApart + i) % size)];
            return Tensor::from_vector(rows, Shape({1, channels, length}), normal.device()).expand(normal.shape()).contiguous();
          }};
}

/// Magnitudes are normal ones times a log-uniform number between `range` and 1.
MixedData log_uniform(int exponent) {
  return {"log_uniform_" + power(exponent), Mixed::within, Changed::source, [=](const Tensor& normal, const Dimensions&) {
            return normal * exp(Tensor::uniform(normal.shape(), exponent * std::numbers::ln10, 0,
                                                {.dtype = normal.dtype(), .device = normal.device()}));
          }};
}

/// One number is 1e10. At the tensor's beginning it is in the sample from which the scale is computed; in the middle rarely.
MixedData outlier(const std::string& name, bool is_first) {
  return {name, Mixed::within, Changed::source, [=](const Tensor& normal, const Dimensions&) {
            Tensor changed = normal.clone();
            changed.view({-1}).narrow(0, is_first ? 0 : normal.numel() / 2 + 1, 1).fill_(1e10);
            return changed;
          }};
}

/// One number of a thousand is normal, the others are 1e-6 times that.
MixedData spikes() {
  return {"spikes", Mixed::within, Changed::source, [](const Tensor& normal, const Dimensions&) {
            const TensorOptions options{.dtype = normal.dtype(), .device = normal.device()};
            return where(less(Tensor::rand(normal.shape(), options), Tensor::full({1}, 1e-3, options)), normal, normal * 1e-6);
          }};
}

}  // namespace

std::string_view name_of(Mixed mixed) { return mixed == Mixed::between ? "between" : "within"; }

std::vector<MixedData> mixed_data(const std::vector<float>& recording) {
  std::vector<MixedData> all;
  add_halves_and_silence(all);
  add_channels_and_samples(all);
  add_tensors(all);
  all.push_back(speech(recording));
  for (const int exponent : {-6, -30}) all.push_back(log_uniform(exponent));
  all.push_back(along(
      "loud_every_64", Changed::source, positions_of, [](std::int64_t i, std::int64_t) { return i % 64 == 0 ? 1.0 : 1e-5; },
      Mixed::within));
  all.push_back(outlier("outlier", false));
  all.push_back(outlier("outlier_first", true));
  all.push_back(spikes());
  return all;
}

std::vector<float> synthetic_speech() {
  constexpr int kRate = 16000, kSeconds = 10, kBurst = 3200, kPeriod = 5600;  // in frames: a burst, a burst and its pause
  constexpr double kFaint = 3e-5, kLoudest = 0.3;
  std::mt19937 random(11);
  std::normal_distribution<double> noise;
  std::vector<float> samples;
  for (int i = 0; i < kRate * kSeconds; ++i) {
    const int period = i / kPeriod, in_period = i % kPeriod;
    const double level = kLoudest / (1 + period % 5);
    const double envelope = in_period < kBurst ? level * std::pow(std::sin(std::numbers::pi * in_period / kBurst), 2.0)
                            : period % 3 == 0  ? 0.0
                                               : kFaint;
    samples.push_back(static_cast<float>(envelope * noise(random)));
  }
  return samples;
}

}  // namespace polyphase::bench
