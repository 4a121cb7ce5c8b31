#pragma once
// EnCodec (Defossez et al., arXiv 2210.13438; facebookresearch/encodec@0e2d0ae:encodec/model.py): the decoder and the encoder
// of the 24 kHz model (causal, weight norm) and of the 48 kHz model (stereo, norms over time, segments of 1 s).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../networks/blocks/euclidean_quantizer.hpp"
#include "../networks/network.hpp"

namespace polyphase {

/// The original's arguments, under its names and with its defaults: those of EncodecModel, in `seanet` those of SEANetEncoder
/// and SEANetDecoder, in `quantizer` those of ResidualVectorQuantizer.
struct EncodecConfig {
  std::int64_t sample_rate = 24000;
  std::int64_t channels = 1;
  bool causal = true;
  bool time_group_norm = false;     ///< model_norm "time_group_norm"; else "weight_norm" or "none", which weights show
  bool audio_normalize = false;     ///< each segment is encoded at the volume 1 and has a scale
  std::optional<double> segment{};  ///< seconds; none: the whole audio in one piece
  double overlap = 0.01;            ///< of segments, as a part of one

  std::int64_t dimension = 128;  ///< of the latent
  std::int64_t n_filters = 32;
  std::vector<std::int64_t> ratios{8, 5, 4, 2};  ///< of the decoder, the encoder's backwards
  std::int64_t n_residual_layers = 1;
  std::int64_t kernel_size = 7;
  std::int64_t last_kernel_size = 7;
  std::int64_t residual_kernel_size = 3;
  std::int64_t dilation_base = 2;
  std::int64_t compress = 2;
  std::int64_t lstm = 2;   ///< layers; 0: none
  bool true_skip = false;  ///< a residual's shortcut is the identity, else a convolution

  std::int64_t n_q = 32;  ///< codebooks; where absent, as many as the last of target_bandwidths takes
  std::int64_t bins = 1024;

  /// Reads the JSON. Throws FormatError naming the entry that does not fit.
  [[nodiscard]] static EncodecConfig parse(const std::string& json);

  [[nodiscard]] std::int64_t hop_length() const;  ///< samples of a frame: the product of ratios
  /// Codebooks for a bandwidth in kbit/s, from 1 to n_q.
  [[nodiscard]] std::int64_t codebooks_for(double bandwidth) const;
  /// Samples of a segment, samples to the next segment, frames of a segment; 0 without segments.
  [[nodiscard]] std::int64_t segment_length() const;
  [[nodiscard]] std::int64_t segment_stride() const;
  [[nodiscard]] std::int64_t segment_frames() const;
};

/// A segment as it is sent.
struct EncodecSegment {
  Tensor codes;    ///< (N, codebooks, frames) i64
  Tensor scale{};  ///< (N, 1): what the decoded audio is multiplied by; undefined: 1
};

/// codes (N, 1 to n_q, frames) -> audio (N, channels, samples).
///
/// Without segments samples = frames*hop_length. With them, forward() takes the codes of all segments one after another, each
/// of segment_frames() but the last, with the scales of set_scales(), and so does a Stream, which returns a segment's audio as
/// soon as it has its codes; decode() takes the segments apart. Loads whole checkpoints and those without an encoder.
class Encodec : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit Encodec(const EncodecConfig& config);

  [[nodiscard]] Tensor forward(const Tensor& codes) override;
  /// Throws NotImplemented with time_group_norm and no segments: its statistics are of the whole length.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  /// Throws ShapeError unless `scales` is (N, segments) and floating point.
  void set_scales(const Tensor& scales) override;
  /// Segments of segment_length() samples overlap and add up, the last one may be shorter; without segments there is one.
  /// Throws ShapeError where they do not go together.
  [[nodiscard]] Tensor decode(std::span<const EncodecSegment> segments);
  /// What the codes of a segment stand for: (N, dimension, frames).
  [[nodiscard]] Tensor latent(const Tensor& codes);
  /// The scale of segment `index`, (N, 1): of set_scales(), else undefined.
  [[nodiscard]] Tensor scale_of(std::int64_t index) const;
  /// The audio of a segment, (N, channels, frames*hop_length), scaled. Throws ShapeError where the two do not go together.
  [[nodiscard]] Tensor decode_segment(const EncodecSegment& segment);
  /// The audio of a segment's latent, before its scale: (N, dimension, frames) -> (N, channels, frames*hop_length).
  [[nodiscard]] Tensor decode_latent(const Tensor& latent);
  [[nodiscard]] const EncodecConfig& config() const { return config_; }

 private:
  struct Parts;
  Encodec(const EncodecConfig& config, Parts parts);
  [[nodiscard]] bool is_unused(std::string_view key) const override;

  EncodecConfig config_;
  std::shared_ptr<EuclideanQuantizer> quantizer_;
  std::shared_ptr<Sequential> decoder_;
  Tensor scales_;  // (N, segments)
};

/// audio (N, channels, samples) -> codes. Loads whole checkpoints and those without a decoder.
///
///     const std::vector<pp::EncodecSegment> segments = encoder.encode(audio, encoder.config().codebooks_for(6.0));
///     const pp::Tensor again = decoder.decode(segments);
class EncodecEncoder : public Network {
 public:
  /// Throws FormatError where the configuration's numbers do not go together.
  explicit EncodecEncoder(const EncodecConfig& config);

  /// Audio of one segment -> what its codes by all codebooks stand for, (N, dimension, ceil(samples/hop_length)). In training
  /// the gradient passes straight through to the encoder, and codebooks do not change; in evaluation there is none. Scales are
  /// not applied: with audio_normalize give it audio of the volume 1.
  [[nodiscard]] Tensor forward(const Tensor& audio) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  /// Before quantisation: (N, channels, samples) -> (N, dimension, ceil(samples/hop_length)).
  [[nodiscard]] Tensor latent(const Tensor& audio);
  /// By the first `codebooks`, 0: all. One segment without segments. Throws ShapeError.
  [[nodiscard]] std::vector<EncodecSegment> encode(const Tensor& audio, std::int64_t codebooks = 0);
  [[nodiscard]] const EncodecConfig& config() const { return config_; }

 private:
  struct Parts;
  EncodecEncoder(const EncodecConfig& config, Parts parts);
  [[nodiscard]] bool is_unused(std::string_view key) const override;

  EncodecConfig config_;
  std::shared_ptr<EuclideanQuantizer> quantizer_;
  std::shared_ptr<Sequential> encoder_;
};

}  // namespace polyphase
