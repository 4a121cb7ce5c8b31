#pragma once
// BigVGAN's generator, v1 and v2 (Lee et al., arXiv 2206.04658; NVIDIA/BigVGAN@7d2b454:bigvgan.py).

#include <string>

#include "../networks/generator_config.hpp"
#include "../networks/network.hpp"

namespace polyphase {

/// The part of the original's configuration that shapes the generator. A residual is AMPBlock1 or AMPBlock2; final_bias is
/// use_bias_at_final, true where absent.
struct BigVganConfig : GeneratorConfig {
  bool has_beta = true;    ///< activation "snakebeta"; else "snake", whose magnitude is its frequency's
  bool log_scale = true;   ///< snake_logscale: the logarithms of alpha and beta are learned
  bool final_tanh = true;  ///< use_tanh_at_final, true where absent; else the audio is clamped to [-1, 1]

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
