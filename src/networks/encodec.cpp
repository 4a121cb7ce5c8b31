#include "networks/encodec.hpp"

#include <algorithm>

#include "layers/streaming/module_stream.hpp"
#include "networks/blocks/segment_overlap.hpp"
#include "networks/encodec_seanet.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"

namespace polyphase {
namespace {

constexpr double kLeastVolume = 1e-8;

std::int64_t divided_down(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Collects the codes of a segment, and returns its audio as far as the next one does not change it.
class SegmentStream : public ModuleStream {
 public:
  explicit SegmentStream(Encodec& net) : net_(net), overlap_(net.config().segment_stride()) {}

  [[nodiscard]] Tensor push(const Tensor& codes, bool last) override {
    const std::int64_t frames = net_.config().segment_frames();
    layers::note_new_state();  // each segment has a volume of its own
    Tensor held = held_.followed_by(codes);
    std::vector<Tensor> audio;
    while (held.size(2) >= frames || (last && held.size(2) > 0)) {
      const std::int64_t count = std::min(frames, held.size(2));
      audio.push_back(overlap_.add(net_.decode_segment({.codes = held.narrow(2, 0, count), .scale = net_.scale_of(done_++)})));
      held = held.narrow(2, count, held.size(2) - count);
    }
    held_.keep(held);
    if (last) audio.push_back(overlap_.finish());
    if (!audio.empty()) return cat(audio, 2);
    const std::vector<std::pair<std::string, Tensor>> state = net_.state_dict();
    return Tensor::empty({codes.size(0), net_.config().channels, 0}, {state.front().second.dtype(), codes.device()});
  }

  void reset() override {
    held_.clear();
    overlap_.reset();
    done_ = 0;
  }

  [[nodiscard]] Span inputs_of(Span outputs) const override {
    const EncodecConfig& config = net_.config();
    const std::int64_t stride = config.segment_stride(), frames = config.segment_frames();
    const std::int64_t length = frames * config.hop_length();
    // The first segment that reaches the first output, and the last that begins before the last one.
    const std::int64_t first = divided_down(outputs.first - length, stride) + 1;
    return {first * frames, divided_down(outputs.last, stride) * frames + frames - 1};
  }
  [[nodiscard]] Rate rate() const override { return {net_.config().segment_stride(), net_.config().segment_frames()}; }

 private:
  Encodec& net_;
  networks::SegmentOverlap overlap_;
  layers::HeldPositions held_;  // codes of a segment that is not complete
  std::int64_t done_ = 0;       // segments
};

NetworkFormat format_of(const EncodecConfig& config, NetworkInput input) {
  const bool is_codes = input == NetworkInput::codes;
  NetworkFormat format{.input = input,
                       .rows = is_codes ? config.n_q : config.channels,
                       .samples_per_frame = config.hop_length(),
                       .audio_channels = config.channels,
                       .sampling_rate = config.sample_rate};
  if (is_codes) format.least_rows = 1;
  return format;
}

std::shared_ptr<EuclideanQuantizer> quantizer_of(const EncodecConfig& config) {
  networks::check_encodec(config);
  return std::make_shared<EuclideanQuantizer>(
      EuclideanQuantizer::Options{.codebooks = config.n_q, .bins = config.bins, .dimension = config.dimension});
}

}  // namespace

struct Encodec::Parts {
  std::shared_ptr<EuclideanQuantizer> quantizer;
  std::shared_ptr<Sequential> decoder;
};

Encodec::Encodec(const EncodecConfig& config)
    : Encodec(config, {quantizer_of(config), std::make_shared<Sequential>(networks::seanet_decoder(config))}) {}

Encodec::Encodec(const EncodecConfig& config, Parts parts)
    : Network(format_of(config, NetworkInput::codes),
              Sequential().push_back("quantizer", parts.quantizer).push_back("decoder.model", parts.decoder)),
      config_(config),
      quantizer_(parts.quantizer),
      decoder_(parts.decoder) {}

bool Encodec::is_unused(std::string_view key) const {
  return key.starts_with("encoder.") || networks::is_unused_by_quantizer(key);
}

Tensor Encodec::latent(const Tensor& codes) { return (*quantizer_)(codes); }
Tensor Encodec::decode_latent(const Tensor& latent) { return (*decoder_)(latent); }

void Encodec::set_scales(const Tensor& scales) {
  require<ShapeError>(!scales.defined() || (scales.rank() == 2 && is_floating_point(scales.dtype())),
                      "encodec: expected scales (N, segments) of floating-point numbers, got ",
                      scales.defined() ? concat(scales.shape(), " of ", scales.dtype()) : "");
  if (!config_.segment) return Network::set_scales(scales);
  scales_ = scales;
}

Tensor Encodec::scale_of(std::int64_t index) const {
  return scales_.defined() && index < scales_.size(1) ? scales_.narrow(1, index, 1) : Tensor();
}

Tensor Encodec::decode_segment(const EncodecSegment& segment) {
  check_input(segment.codes);
  const Tensor audio = decode_latent(latent(segment.codes));
  if (!segment.scale.defined()) return audio;
  require<ShapeError>(segment.scale.numel() == audio.size(0), "encodec: expected a scale (", audio.size(0), ", 1), got ",
                      segment.scale.shape());
  return audio * segment.scale.reshape({audio.size(0), 1, 1}).to(audio.dtype()).to(audio.device());
}

Tensor Encodec::decode(std::span<const EncodecSegment> segments) {
  require<ShapeError>(!segments.empty(), "encodec: expected at least one segment");
  require<ShapeError>(config_.segment || segments.size() == 1, "encodec: expected one segment, got ", segments.size(),
                      " for a configuration without segments");
  networks::SegmentOverlap overlap(std::max<std::int64_t>(config_.segment_stride(), 1));
  std::vector<Tensor> pieces;
  for (const EncodecSegment& segment : segments) {
    const Tensor audio = decode_segment(segment);
    if (!config_.segment) return audio;
    pieces.push_back(overlap.add(audio));
  }
  pieces.push_back(overlap.finish());
  return cat(pieces, 2);
}

Tensor Encodec::forward(const Tensor& codes) {
  check_input(codes);
  std::vector<EncodecSegment> segments;
  const std::int64_t frames = config_.segment ? config_.segment_frames() : codes.size(2);
  for (std::int64_t begin = 0; begin < codes.size(2); begin += frames)
    segments.push_back({.codes = codes.narrow(2, begin, std::min(frames, codes.size(2) - begin)),
                        .scale = scale_of(static_cast<std::int64_t>(segments.size()))});
  return decode(segments);
}

std::unique_ptr<ModuleStream> Encodec::make_stream() {
  if (config_.segment) return std::make_unique<SegmentStream>(*this);
  return Network::make_stream();
}

struct EncodecEncoder::Parts {
  std::shared_ptr<EuclideanQuantizer> quantizer;
  std::shared_ptr<Sequential> encoder;
};

EncodecEncoder::EncodecEncoder(const EncodecConfig& config)
    : EncodecEncoder(config, {quantizer_of(config), std::make_shared<Sequential>(networks::seanet_encoder(config))}) {}

EncodecEncoder::EncodecEncoder(const EncodecConfig& config, Parts parts)
    : Network(format_of(config, NetworkInput::audio),
              Sequential().push_back("encoder.model", parts.encoder).push_back("quantizer", parts.quantizer)),
      config_(config),
      quantizer_(parts.quantizer),
      encoder_(parts.encoder) {}

bool EncodecEncoder::is_unused(std::string_view key) const {
  return key.starts_with("decoder.") || networks::is_unused_by_quantizer(key);
}

Tensor EncodecEncoder::latent(const Tensor& audio) {
  check_input(audio);
  return (*encoder_)(audio);
}

Tensor EncodecEncoder::forward(const Tensor& audio) {
  const Tensor vectors = latent(audio);
  const Tensor quantized = (*quantizer_)(quantizer_->encode(vectors, config_.n_q));
  return is_training() ? straight_through(vectors, quantized.to(vectors.dtype())) : quantized;
}

std::unique_ptr<ModuleStream> EncodecEncoder::make_stream() { return Module::make_stream(); }

std::vector<EncodecSegment> EncodecEncoder::encode(const Tensor& audio, std::int64_t codebooks) {
  check_input(audio);
  const std::int64_t samples = audio.size(2);
  const std::int64_t length = config_.segment ? config_.segment_length() : samples;
  const std::int64_t stride = config_.segment ? config_.segment_stride() : samples;
  std::vector<EncodecSegment> segments;
  for (std::int64_t begin = 0; begin < samples; begin += stride) {
    Tensor piece = audio.narrow(2, begin, std::min(length, samples - begin));
    EncodecSegment segment;
    if (config_.audio_normalize) {
      const Tensor volume = sqrt(mean(square(mean(piece, {1}, true)), {2}, true));
      const Tensor scale = volume + kLeastVolume;
      piece = piece / scale;
      segment.scale = scale.reshape({audio.size(0), 1});
    }
    segment.codes = quantizer_->encode(latent(piece), codebooks == 0 ? config_.n_q : codebooks);
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace polyphase
