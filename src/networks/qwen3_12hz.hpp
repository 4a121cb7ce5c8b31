#pragma once
// The decoder of Qwen3-TTS' 12 Hz tokenizer (QwenLM/Qwen3-TTS@022e286:
// qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py): split residual codebooks, a transformer over a window of
// the past, ConvNeXt blocks between upsamplings, and causal SnakeBeta blocks.

#include <cstdint>
#include <string>
#include <vector>

#include "../networks/network.hpp"

namespace polyphase {

/// The original's decoder configuration. Values are its defaults; codebook_dim has none.
struct Qwen3Tts12HzConfig {
  enum class HiddenAct { silu, gelu, relu };

  std::int64_t codebook_size = 2048;
  std::int64_t codebook_dim = 0;  ///< of what the codebooks give together; an entry has half as many numbers
  std::int64_t num_quantizers = 16;
  std::int64_t latent_dim = 1024;
  std::int64_t hidden_size = 1024;  ///< of the transformer
  std::int64_t num_hidden_layers = 8;
  std::int64_t num_attention_heads = 16;
  std::int64_t num_key_value_heads = 16;
  std::int64_t head_dim = 64;
  bool attention_bias = false;
  std::int64_t sliding_window = 72;  ///< steps that a step sees, its own included; 0: all before it
  double rope_theta = 10000;
  std::int64_t intermediate_size = 3072;
  HiddenAct hidden_act = HiddenAct::silu;
  double rms_norm_eps = 1e-5;
  double layer_scale_initial_scale = 0.01;
  std::vector<std::int64_t> upsampling_ratios{2, 2};     ///< before the decoder's first convolution
  std::vector<std::int64_t> upsample_rates{8, 5, 4, 3};  ///< of the decoder's blocks
  std::int64_t decoder_dim = 1536;
  std::int64_t sampling_rate = 24000;  ///< the tokenizer's output_sample_rate

  /// Reads the JSON, the decoder's own or the tokenizer's, which has it as `decoder_config`. Throws FormatError naming the
  /// entry that is missing or does not fit.
  [[nodiscard]] static Qwen3Tts12HzConfig parse(const std::string& json);
};

/// codes (N, num_quantizers, frames) -> audio (N, 1, samples) in [-1, 1].
class Qwen3Tts12Hz : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit Qwen3Tts12Hz(const Qwen3Tts12HzConfig& config);
  /// What the original's chunked_decode() gives: forward() of `chunk_size` frames at a time and up to `left_context_size`
  /// frames before them, whose samples are dropped. The past of a chunk is cut, so that this differs from forward(); a Stream
  /// does not. Throws ShapeError unless chunk_size >= 1 and left_context_size >= 0, and what forward() throws.
  [[nodiscard]] Tensor chunked_decode(const Tensor& codes, std::int64_t chunk_size = 300, std::int64_t left_context_size = 25);

 protected:
  [[nodiscard]] bool is_unused(std::string_view key) const override;
  [[nodiscard]] std::string own_name(std::string_view key) const override;
};

}  // namespace polyphase
