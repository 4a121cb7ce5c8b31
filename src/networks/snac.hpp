#pragma once
// SNAC's decoder (Siuzdak et al., arXiv 2410.14411; hubertsiuzdak/snac@f49016a:snac/snac.py): a codec whose codebooks have
// different rates.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../networks/network.hpp"

namespace polyphase {

class NoiseSource;
class ResidualQuantizer;

/// The part of the original's configuration that shapes the decoder, under its names and with its defaults.
struct SnacConfig {
  std::int64_t sampling_rate = 44100;
  std::int64_t latent_dim = 1024;  ///< absent: encoder_dim times 2 to the power of the number of encoder_rates
  std::int64_t decoder_dim = 1536;
  std::vector<std::int64_t> decoder_rates{7, 7, 3, 3};
  std::int64_t attn_window_size = 32;  ///< positions of the latent in a window of attention; 0 (null): no attention
  std::int64_t codebook_size = 4096;
  std::int64_t codebook_dim = 8;
  std::vector<std::int64_t> vq_strides{8, 4, 2, 1};  ///< one for each codebook: positions of the latent for one code
  bool noise = true;
  bool depthwise = true;

  /// Reads the JSON. Throws FormatError naming the entry that does not fit.
  [[nodiscard]] static SnacConfig parse(const std::string& json);
};

/// codes (N, rows, frames) -> audio (N, 1, samples) in [-1, 1]; samples = frames * samples_per_frame.
///
/// A frame is one step of the slowest codebook and all codes of the others in that time, in the order of codebooks and then of
/// time: with strides 4, 2, 1 rows 0 | 1 2 | 3 4 5 6. pack() and unpack() go between that and a tensor for each codebook. With
/// attention the number of frames is a multiple of format().frame_multiple.
///
/// The original adds noise at each stage, new in every call. Here, in evaluation, it is a function of a seed and of the
/// position, so that a stream, a second call and every sample of a batch have the same; in training it comes from the
/// thread's generator. A copy of the network shares the noise.
class SnacDecoder : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit SnacDecoder(const SnacConfig& config);

  /// Codes of each codebook, (N, T_i) i64 with T_i times its stride the same for all -> (N, rows, frames), and back. Throw
  /// ShapeError where the lengths do not go together.
  [[nodiscard]] Tensor pack(const std::vector<Tensor>& codes);
  [[nodiscard]] std::vector<Tensor> unpack(const Tensor& packed);
  /// What packed codes stand for: (N, latent_dim, positions).
  [[nodiscard]] Tensor latent(const Tensor& packed);

  /// The seed of the noise in evaluation, 0 at first.
  void set_noise_seed(std::uint64_t seed);
  /// Noise from outside instead, for each of the noise blocks (1 or N, 1, samples there), in order.
  void set_noise(std::vector<Tensor> rows);
  /// No noise.
  void without_noise();

 private:
  SnacDecoder(const SnacConfig& config, std::shared_ptr<NoiseSource> noise);
  [[nodiscard]] bool is_unused(std::string_view key) const override;
  [[nodiscard]] ResidualQuantizer& quantizer();

  std::shared_ptr<NoiseSource> noise_;
};

}  // namespace polyphase
