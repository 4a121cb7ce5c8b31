#pragma once
// The Descript Audio Codec (Kumar et al., arXiv 2306.06546; descriptinc/descript-audio-codec@c7cfc5d:dac/model/dac.py):
// decoder, encoder, and both together.

#include <cstdint>
#include <string>
#include <vector>

#include "../networks/blocks/factorized_quantizer.hpp"
#include "../networks/network.hpp"

namespace polyphase {

/// The original's arguments, under its names and with its defaults, those of the 44 kHz model.
struct DacConfig {
  std::int64_t encoder_dim = 64;
  std::vector<std::int64_t> encoder_rates{2, 4, 8, 8};
  std::int64_t latent_dim = 0;  ///< 0: encoder_dim times 2 to the power of the number of encoder_rates
  std::int64_t decoder_dim = 1536;
  std::vector<std::int64_t> decoder_rates{8, 8, 4, 2};
  std::int64_t n_codebooks = 9;
  std::int64_t codebook_size = 1024;
  std::vector<std::int64_t> codebook_dim{8};  ///< one for all codebooks, or one for each
  std::int64_t sample_rate = 44100;

  /// Reads the JSON (`metadata.kwargs` of a published file). Throws FormatError naming the entry that does not fit.
  [[nodiscard]] static DacConfig parse(const std::string& json);
};

/// codes (N, 1 to n_codebooks, frames) -> audio (N, 1, samples) in [-1, 1]. samples = frames * product of decoder_rates, less a
/// few where a rate is odd: a stage of odd rate s makes s*L - 1 of L (24 and 16 kHz). Loads whole checkpoints and those without
/// an encoder.
class DacDecoder : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit DacDecoder(const DacConfig& config);
  /// What the codes stand for: (N, latent_dim, frames).
  [[nodiscard]] Tensor latent(const Tensor& codes);

 private:
  [[nodiscard]] bool is_unused(std::string_view key) const override;
};

/// audio (N, 1, samples) -> codes (N, n_codebooks, frames); zeros are put after the audio up to whole frames, each of as many
/// samples as the product of encoder_rates. Loads whole checkpoints and those without a decoder.
class DacEncoder : public Network {
 public:
  struct Encoded {
    Tensor encoded;    ///< (N, latent_dim, frames), before quantization
    Tensor codes;      ///< (N, n_codebooks, frames) i64
    Tensor latents;    ///< (N, sum of codebook_dim, frames): what was compared with the codebooks
    Tensor quantized;  ///< (N, latent_dim, frames): what the codes stand for; gradients pass straight through
  };
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit DacEncoder(const DacConfig& config);
  /// Throws what forward() throws.
  [[nodiscard]] Encoded encode(const Tensor& audio);

 private:
  [[nodiscard]] bool is_unused(std::string_view key) const override;
};

/// The whole codec: audio (N, 1, samples) -> audio (N, 1, samples), or a few fewer as a DacDecoder has it. For training:
/// gradients pass the quantizer straight through, and codebooks stay as they are.
class Dac : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit Dac(const DacConfig& config);
  [[nodiscard]] Tensor forward(const Tensor& audio) override;
  /// Throws NotImplemented: DacEncoder and DacDecoder are streamed.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  /// audio (N, 1, samples) -> codes (N, n_codebooks, frames).
  [[nodiscard]] Tensor encode(const Tensor& audio);
  /// codes (N, 1 to n_codebooks, frames) -> audio.
  [[nodiscard]] Tensor decode(const Tensor& codes);
};

}  // namespace polyphase
