#pragma once
// The decoder of Stable Audio's autoencoder, Oobleck (Evans et al., arXiv 2404.10301;
// Stability-AI/stable-audio-tools@50049e3:stable_audio_tools/models/autoencoders.py, OobleckDecoder).

#include <cstdint>
#include <string>
#include <vector>

#include "../networks/network.hpp"

namespace polyphase {

/// The original's arguments, under its names and with its defaults.
struct OobleckConfig {
  std::int64_t out_channels = 2;
  std::int64_t channels = 128;
  std::vector<std::int64_t> c_mults{1, 2, 4, 8};  ///< channels of a stage over `channels`, from the audio's end on
  std::vector<std::int64_t> strides{2, 4, 8, 8};  ///< one for each of c_mults
  std::int64_t latent_dim = 32;
  bool use_snake = false;             ///< SnakeBeta, else ELU
  bool antialias_activation = false;  ///< of the activations outside the residual units
  bool use_nearest_upsample = false;  ///< repetition and a convolution instead of a transposed one
  bool final_tanh = true;
  std::int64_t sample_rate = 0;

  /// Reads the JSON of a model: the object `config` of model.decoder, or of model.pretransform.config.decoder. Throws
  /// FormatError naming the entry that is missing or does not fit.
  [[nodiscard]] static OobleckConfig parse(const std::string& json);
};

/// latent (N, latent_dim, frames) -> audio (N, out_channels, samples), within [-1, 1] only with final_tanh; samples =
/// frames * product of strides, less a few where a stride is odd: such a stage makes s*L - 1 of L unless use_nearest_upsample.
class OobleckDecoder : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit OobleckDecoder(const OobleckConfig& config);

 private:
  [[nodiscard]] bool is_unused(std::string_view key) const override;
};

}  // namespace polyphase
