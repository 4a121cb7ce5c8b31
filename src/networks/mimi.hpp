#pragma once
// Mimi's decoder (Défossez et al., arXiv 2410.00037; kyutai-labs/moshi@e6a55d2:moshi/moshi/models/{loaders,compression}.py):
// split residual codebooks, an upsampling of the latent, a transformer over a window of the past, and a causal SEANet decoder.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../networks/network.hpp"

namespace polyphase {

/// The part of the original's configuration that shapes the decoder. Values are those of the published model.
struct MimiConfig {
  struct Seanet {
    std::int64_t channels = 1;     ///< of the audio
    std::int64_t dimension = 512;  ///< of the latent
    std::int64_t n_filters = 64;
    std::int64_t n_residual_layers = 1;
    std::vector<std::int64_t> ratios{8, 6, 5, 4};
    std::int64_t kernel_size = 7;
    std::int64_t last_kernel_size = 3;
    std::int64_t residual_kernel_size = 3;
    std::int64_t dilation_base = 2;
    std::int64_t compress = 2;
    double elu_alpha = 1;
    bool pads_by_replicating = false;  ///< pad_mode "replicate"; else "constant", zeros
    bool final_tanh = false;           ///< final_activation "Tanh"; else none
  };
  struct Quantizer {
    std::int64_t dimension = 256;
    std::int64_t n_q = 32;
    std::int64_t n_q_semantic = 1;
    std::int64_t bins = 2048;
  };
  struct Transformer {
    std::int64_t d_model = 512;
    std::int64_t num_heads = 8;
    std::int64_t kv_repeat = 1;
    std::int64_t num_layers = 8;
    std::int64_t dim_feedforward = 2048;
    std::int64_t context = 250;  ///< keys that a step sees, its own included; 0, or null in the JSON: all before it
    double max_period = 10000;   ///< of the rotations
    bool rotates = true;         ///< positional_embedding "rope" or "rope_concat"; else "none"
    bool interleaved = true;     ///< "rope"; "rope_concat" pairs halves
    std::optional<double> layer_scale = 0.01;  ///< at first; none, or null in the JSON: no scales
    double norm_epsilon = 1e-5;                ///< norm "layer_norm"; 1e-8 for "layer_norm_f32"
  };
  Seanet seanet{};
  Quantizer quantizer{};
  Transformer transformer{};
  std::int64_t sample_rate = 24000;
  double frame_rate = 12.5;
  /// Ours, no key of the original: a Stream's results are those of the original's streaming, not of forward(). Its ring buffer
  /// holds `context` steps of the transformer, and all steps of a push are written before any of them looks: each sees only the
  /// newest `context` steps. Once the context is full, results depend on the pieces. No push may have more steps than that.
  bool streams_as_original = false;

  /// Reads the JSON. Throws FormatError naming the entry that is missing or does not fit.
  [[nodiscard]] static MimiConfig parse(const std::string& json);
};

/// codes (N, K, frames) -> audio (N, channels, samples), K from n_q_semantic to n_q: codebooks that are missing add nothing.
class Mimi : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit Mimi(const MimiConfig& config);
  /// codes -> what the codebooks choose, (N, dimension, frames). Throws what forward() throws.
  [[nodiscard]] Tensor latent(const Tensor& codes);

 protected:
  [[nodiscard]] bool is_unused(std::string_view key) const override;
  [[nodiscard]] std::string own_name(std::string_view key) const override;
};

}  // namespace polyphase
