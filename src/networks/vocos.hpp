#pragma once
// Vocos (Siuzdak, arXiv 2306.00814; gemelo-ai/vocos@c859e3b:vocos/{models,modules,heads}.py): ConvNeXt blocks at the rate of
// frames and an inverse short-time Fourier transform.

#include <cstdint>
#include <memory>
#include <string>

#include "../networks/network.hpp"
#include "../ops/spectral.hpp"

namespace polyphase {

/// The part of the original's configuration that shapes backbone and head, under its names.
struct VocosConfig {
  std::int64_t input_channels = 0;
  std::int64_t dim = 0;
  std::int64_t intermediate_dim = 0;
  std::int64_t num_layers = 0;
  double layer_scale_init_value = 0;        ///< of gamma; 0: 1/num_layers
  std::int64_t adanorm_num_embeddings = 0;  ///< bandwidths of AdaLayerNorm; 0: LayerNorm
  std::int64_t n_fft = 1024;
  std::int64_t hop_length = 256;
  IstftPadding padding = IstftPadding::same;
  std::int64_t sampling_rate = 0;  ///< of feature_extractor; 0 where the configuration has none
  bool from_mel = true;            ///< the features are mels; else of another kind: EnCodec's latents

  /// Reads the JSON: backbone.init_args, head.init_args, feature_extractor. Throws FormatError naming the entry that is missing
  /// or does not fit.
  [[nodiscard]] static VocosConfig parse(const std::string& json);
};

/// features (N, input_channels, frames) -> audio (N, 1, samples): (frames - 1)*hop_length samples with the padding "center",
/// frames*hop_length with "same" where n_fft - hop_length is even. vocos_mel() makes the mels. Keys of a checkpoint's feature
/// extractor are passed over.
class Vocos : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit Vocos(const VocosConfig& config);
  /// Which of the bandwidths of AdaLayerNorm the features have, 0 at first: the original's bandwidth_id. Throws ShapeError
  /// unless 0 <= id < adanorm_num_embeddings.
  void set_bandwidth_id(std::int64_t id);
  [[nodiscard]] const VocosConfig& config() const { return config_; }

 private:
  Vocos(const VocosConfig& config, std::shared_ptr<std::int64_t> bandwidth_id);
  [[nodiscard]] bool is_unused(std::string_view key) const override;

  VocosConfig config_;
  std::shared_ptr<std::int64_t> bandwidth_id_;  // its norms read it
};

}  // namespace polyphase
