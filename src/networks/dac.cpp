#include "networks/dac.hpp"

#include <algorithm>

#include "layers/activations.hpp"
#include "layers/streaming/module_stream.hpp"
#include "networks/blocks/snake_blocks.hpp"
#include "networks/config.hpp"
#include "ops/length.hpp"

namespace polyphase {
namespace {

using Role = ResidualQuantizer::Role;

std::int64_t latent_dim(const DacConfig& config) {
  return config.latent_dim > 0 ? config.latent_dim : config.encoder_dim << config.encoder_rates.size();
}

void check(const DacConfig& config) {
  const auto expect = [](bool condition, const auto&... what) { require<FormatError>(condition, "dac: config: ", what...); };
  const std::size_t encoder_stages = config.encoder_rates.size(), decoder_stages = config.decoder_rates.size();
  for (const std::size_t stages : {encoder_stages, decoder_stages})
    expect(stages >= 1 && stages <= kMostStages, "expected 1 to ", kMostStages, " encoder_rates and decoder_rates, got ",
           stages);
  expect(config.decoder_dim >> decoder_stages >= 1,
         "expected decoder_dim of at least 2 to the power of the number of decoder_rates, got ", config.decoder_dim);
  for (const auto& rates : {config.encoder_rates, config.decoder_rates})
    expect(product_of_rates(rates) <= kLargestFrame, "expected encoder_rates and decoder_rates with a product of at most ",
           kLargestFrame);
  expect(config.n_codebooks >= 1 && static_cast<std::size_t>(config.n_codebooks) <= kMostCodebooks, "expected 1 to ",
         kMostCodebooks, " n_codebooks, got ", config.n_codebooks);
  expect(config.codebook_dim.size() == 1 || static_cast<std::int64_t>(config.codebook_dim.size()) == config.n_codebooks,
         "expected one codebook_dim, or one for each of ", config.n_codebooks, " codebooks, got ", config.codebook_dim.size());
}

ResidualQuantizer quantizer(const DacConfig& config, Role role) {
  std::vector<std::int64_t> dims = config.codebook_dim;
  dims.resize(static_cast<std::size_t>(config.n_codebooks), config.codebook_dim.front());
  return ResidualQuantizer(
      {.input_dim = latent_dim(config), .codebook_size = config.codebook_size, .codebook_dims = std::move(dims), .role = role});
}

Sequential decoder(const DacConfig& config) {
  std::int64_t channels = config.decoder_dim;
  Sequential model;
  model.push_back(same_conv(latent_dim(config), channels, 7));
  for (const std::int64_t rate : config.decoder_rates) {
    Sequential block(Snake(channels), upsampling(channels, channels / 2, rate));
    channels /= 2;
    append_residual_units(block, {.channels = channels});
    model.push_back(named(concat(model.size(), ".block"), std::move(block)));
  }
  model.push_back(Snake(channels));
  model.push_back(same_conv(channels, 1, 7));
  model.push_back(Tanh());
  return model;
}

Sequential encoder(const DacConfig& config) {
  std::int64_t channels = config.encoder_dim;
  Sequential model;
  model.push_back(same_conv(1, channels, 7));
  for (const std::int64_t rate : config.encoder_rates) {
    Sequential block;
    append_residual_units(block, {.channels = channels});
    block.push_back(Snake(channels));
    block.push_back(downsampling(channels, 2 * channels, rate));
    channels *= 2;
    model.push_back(named(concat(model.size(), ".block"), std::move(block)));
  }
  model.push_back(Snake(channels));
  model.push_back(same_conv(channels, latent_dim(config), 3));
  return model;
}

/// Puts zeros after the last position, up to a multiple of `frame`.
class PadToFrames : public PlainModule {
 public:
  explicit PadToFrames(std::int64_t frame) : frame_(frame) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override { return padded(x, x.size(2)); }
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override { return std::make_unique<PadStream>(*this); }

 private:
  class PadStream : public ModuleStream {
   public:
    explicit PadStream(const PadToFrames& pad) : pad_(pad) {}
    [[nodiscard]] Tensor push(const Tensor& x, bool last) override {
      layers::count_on(length_, x.size(2));
      return last ? pad_.padded(x, length_) : x;
    }
    void reset() override { length_ = 0; }
    [[nodiscard]] Span inputs_of(Span outputs) const override { return outputs; }
    [[nodiscard]] Rate rate() const override { return {}; }

   private:
    const PadToFrames& pad_;
    std::int64_t length_ = 0;
  };

  [[nodiscard]] Tensor padded(const Tensor& x, std::int64_t length) const {
    const std::int64_t missing = (frame_ - length % frame_) % frame_;
    return missing == 0 ? x : pad1d(x, {0, missing});
  }

  std::int64_t frame_;
};

Sequential decoder_body(const DacConfig& config) {
  check(config);
  return Sequential(named("quantizer", quantizer(config, Role::decoder)), named("decoder.model", decoder(config)));
}

/// Padding, encoder, quantizer: at these places.
constexpr std::size_t kPad = 0, kEncoder = 1, kQuantizer = 2, kDecoder = 3;
Sequential encoder_body(const DacConfig& config, Role role) {
  check(config);
  return Sequential(named("", PadToFrames(product_of_rates(config.encoder_rates))), named("encoder.block", encoder(config)),
                    named("quantizer", quantizer(config, role)));
}

Sequential whole_body(const DacConfig& config) {
  Sequential body = encoder_body(config, Role::autoencoder);
  body.push_back(named("decoder.model", decoder(config)));
  return body;
}

ResidualQuantizer& quantizer_at(const Sequential& body, std::size_t place) {
  return static_cast<ResidualQuantizer&>(body[place]);
}

NetworkFormat audio_format(const DacConfig& config) {
  return {.input = NetworkInput::audio,
          .rows = 1,
          .samples_per_frame = product_of_rates(config.encoder_rates),
          .sampling_rate = config.sample_rate};
}

}  // namespace

DacConfig DacConfig::parse(const std::string& text) {
  const NetworkConfig json("dac", text);
  DacConfig config;
  config.encoder_dim = json.count_or("encoder_dim", config.encoder_dim);
  if (json.has("encoder_rates")) config.encoder_rates = json.counts("encoder_rates");
  config.latent_dim = json.count_or("latent_dim", 0);
  config.decoder_dim = json.count_or("decoder_dim", config.decoder_dim);
  if (json.has("decoder_rates")) config.decoder_rates = json.counts("decoder_rates");
  config.n_codebooks = json.count_or("n_codebooks", config.n_codebooks);
  config.codebook_size = json.count_or("codebook_size", config.codebook_size);
  if (json.has("codebook_dim")) config.codebook_dim = json.count_or_counts("codebook_dim");
  config.sample_rate = json.count_or("sample_rate", config.sample_rate);
  check(config);
  return config;
}

DacDecoder::DacDecoder(const DacConfig& config)
    : Network({.input = NetworkInput::codes,
               .rows = config.n_codebooks,
               .samples_per_frame = product_of_rates(config.decoder_rates),
               .sampling_rate = config.sample_rate,
               .least_rows = 1},
              decoder_body(config)) {}

Tensor DacDecoder::latent(const Tensor& codes) {
  check_input(codes);
  return body()[0](codes);
}

bool DacDecoder::is_unused(std::string_view key) const { return is_of_encoder(key); }

DacEncoder::DacEncoder(const DacConfig& config) : Network(audio_format(config), encoder_body(config, Role::encoder)) {}

DacEncoder::Encoded DacEncoder::encode(const Tensor& audio) {
  check_input(audio);
  Encoded result;
  result.encoded = body()[kEncoder](body()[kPad](audio));
  ResidualQuantizer::Encoded quantized = quantizer_at(body(), kQuantizer).encode(result.encoded);
  result.codes = std::move(quantized.codes);
  result.latents = std::move(quantized.projected);
  result.quantized = std::move(quantized.quantized);
  return result;
}

bool DacEncoder::is_unused(std::string_view key) const { return key.starts_with("decoder."); }

Dac::Dac(const DacConfig& config) : Network(audio_format(config), whole_body(config)) {}

Tensor Dac::forward(const Tensor& audio) {
  const Tensor result = Network::forward(audio);
  return result.narrow(2, 0, std::min(result.size(2), audio.size(2)));
}

std::unique_ptr<ModuleStream> Dac::make_stream() { return Module::make_stream(); }

Tensor Dac::encode(const Tensor& audio) {
  check_input(audio);
  return quantizer_at(body(), kQuantizer).encode(body()[kEncoder](body()[kPad](audio))).codes;
}

Tensor Dac::decode(const Tensor& codes) { return body()[kDecoder](quantizer_at(body(), kQuantizer).decode(codes)); }

}  // namespace polyphase
