#pragma once
// How close a vocoder's sound is to the recordings whose mels it gets.

#include <string>
#include <vector>

#include "networks/network.hpp"
#include "networks/registry.hpp"
#include "shared.hpp"
#include "training/clip.hpp"

namespace vocoder {

struct Scores {
  double mel = 0;   ///< mean |difference| of log-mels up to half the rate, natural logarithm: the originals' validation error
  double stft = 0;  ///< multi_resolution_stft_loss() with its defaults
};

struct ClipScores {
  std::string name;
  double seconds = 0;
  Scores scores;
};

/// What turns audio into a network's input, and what the configuration says of distances.
struct Vocoder {
  pp::Network& net;
  std::string config;  ///< HiFi-GAN's or BigVGAN's JSON
};

/// The network's sound of the mel of `samples`, as long as they are, in evaluation mode.
[[nodiscard]] std::vector<float> resynthesize(const Vocoder& vocoder, const std::vector<float>& samples);
/// Throws ShapeError unless both are of one length of at least kShortest samples.
[[nodiscard]] Scores score(const Vocoder& vocoder, const std::vector<float>& reference, const std::vector<float>& output);
/// Every clip of at least kShortest samples, in order.
[[nodiscard]] std::vector<ClipScores> evaluate(const Vocoder& vocoder, const ClipSet& clips);
/// The mean over clips, under the name "mean"; seconds is their sum.
[[nodiscard]] ClipScores mean_of(const std::vector<ClipScores>& scores);
/// The table of all clips and their mean, ready to print.
[[nodiscard]] std::string table_of(const std::vector<ClipScores>& scores);

inline constexpr std::int64_t kShortest = 4096;

}  // namespace vocoder
