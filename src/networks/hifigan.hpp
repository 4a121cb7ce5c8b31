#pragma once
// HiFi-GAN's generator (Kong et al., arXiv 2010.05646; jik876/hifi-gan@4769534:models.py), V1 to V3, and the decoder of VITS
// and Piper, which is the same without a bias in its last layer.

#include <string>

#include "../networks/generator_config.hpp"
#include "../networks/network.hpp"

namespace polyphase {

/// The part of the original's configuration that shapes the generator. final_bias is a key of ours: false for VITS and Piper.
struct HifiGanConfig : GeneratorConfig {
  bool normalizes_input = false;  ///< key `normalize_before`, transformers': tensors `mean` and `scale` of the mel's rows

  /// Reads the JSON. Throws FormatError naming the entry that is missing or does not fit.
  [[nodiscard]] static HifiGanConfig parse(const std::string& json);
};

/// mel (N, num_mels, frames) -> audio (N, 1, samples) in [-1, 1]; samples = frames * product of upsample_rates where each
/// kernel size and its rate are both even or both odd.
class HifiGan : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit HifiGan(const HifiGanConfig& config);
};

}  // namespace polyphase
