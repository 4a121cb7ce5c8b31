#pragma once
// BigVGAN's generator, v1 and v2 (Lee et al., arXiv 2206.04658; NVIDIA/BigVGAN@7d2b454:bigvgan.py).

#include <cstdint>
#include <string>
#include <vector>

#include "../networks/network.hpp"

namespace polyphase {

/// The part of the original's configuration that shapes the generator.
struct BigVganConfig {
  bool two_convolutions = true;  ///< in a residual: resblock "1", AMPBlock1; else "2", AMPBlock2
  std::vector<std::int64_t> upsample_rates{};
  std::vector<std::int64_t> upsample_kernel_sizes{};  ///< one for each rate
  std::int64_t upsample_initial_channel = 0;
  std::vector<std::int64_t> resblock_kernel_sizes{};
  std::vector<std::vector<std::int64_t>> resblock_dilation_sizes{};  ///< one list for each kernel size
  std::int64_t num_mels = 80;
  std::int64_t sampling_rate = 0;
  bool has_beta = true;    ///< activation "snakebeta"; else "snake", whose magnitude is its frequency's
  bool log_scale = true;   ///< snake_logscale: the logarithms of alpha and beta are learned
  bool final_tanh = true;  ///< use_tanh_at_final, true where absent; else the audio is clamped to [-1, 1]
  bool final_bias = true;  ///< use_bias_at_final, true where absent

  /// Reads the JSON. Throws FormatError naming the entry that is missing or does not fit.
  [[nodiscard]] static BigVganConfig parse(const std::string& json);
};

/// mel (N, num_mels, frames) -> audio (N, 1, samples) in [-1, 1]; samples = frames * product of upsample_rates where each
/// kernel size and its rate are both even or both odd. The low-pass filters of the activations are buffers, and those of a
/// checkpoint are used.
class BigVgan : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit BigVgan(const BigVganConfig& config);
};

}  // namespace polyphase
