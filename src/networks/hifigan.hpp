#pragma once
// HiFi-GAN's generator (Kong et al., arXiv 2010.05646; jik876/hifi-gan@4769534:models.py), V1 to V3, and the decoder of VITS
// and Piper, which is the same without a bias in its last layer.

#include <cstdint>
#include <string>
#include <vector>

#include "../networks/network.hpp"

namespace polyphase {

/// The part of the original's configuration that shapes the generator.
struct HifiGanConfig {
  bool two_convolutions = true;  ///< in a residual: resblock "1"; else "2"
  std::vector<std::int64_t> upsample_rates{};
  std::vector<std::int64_t> upsample_kernel_sizes{};  ///< one for each rate
  std::int64_t upsample_initial_channel = 0;
  std::vector<std::int64_t> resblock_kernel_sizes{};
  std::vector<std::vector<std::int64_t>> resblock_dilation_sizes{};  ///< one list for each kernel size
  std::int64_t num_mels = 80;
  std::int64_t sampling_rate = 0;
  bool final_bias = true;         ///< key `final_bias`, ours: false for VITS and Piper
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
