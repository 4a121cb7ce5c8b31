#pragma once
// Synthetic sound for the tests.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "program/audio/wav_writer.hpp"
#include "tensor/random.hpp"

namespace polyphase::testing {

/// `count` samples of a sine of `frequency` Hz at `rate` Hz.
inline std::vector<float> sine(double frequency, int rate, std::int64_t count, double amplitude = 0.5) {
  std::vector<float> samples(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<float>(amplitude * std::sin(2 * std::numbers::pi * frequency * static_cast<double>(i) / rate));
  }
  return samples;
}

/// Uniform noise in [-amplitude, amplitude).
inline std::vector<float> noise(std::int64_t count, std::uint64_t seed = 1, double amplitude = 0.5) {
  Generator generator(seed);
  std::vector<float> samples(static_cast<std::size_t>(count));
  for (float& sample : samples) sample = static_cast<float>(amplitude * (2 * generator.uniform() - 1));
  return samples;
}

/// A float WAV file of these channels.
inline void write_sound(const std::string& path, int rate, const std::vector<std::vector<float>>& channels) {
  program::write_wav(path, {rate, channels}, program::SampleFormat::float32);
}

/// sqrt of the mean square of [begin, end).
inline double rms(const std::vector<float>& samples, std::size_t begin, std::size_t end) {
  double squares = 0;
  for (std::size_t i = begin; i < end; ++i) squares += static_cast<double>(samples[i]) * samples[i];
  return std::sqrt(squares / static_cast<double>(end - begin));
}

}  // namespace polyphase::testing
