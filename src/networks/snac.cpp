#include "networks/snac.hpp"

#include <numeric>
#include <utility>

#include "layers/activations.hpp"
#include "networks/blocks/factorized_quantizer.hpp"
#include "networks/blocks/local_attention.hpp"
#include "networks/blocks/noise_block.hpp"
#include "networks/blocks/snake_blocks.hpp"
#include "networks/config.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kHead = 64;             // channels of a head of attention
constexpr std::int64_t kLongestWindow = 1024;  // positions of the latent, of attention and of a codebook's stride

void check(const SnacConfig& config) {
  const auto expect = [](bool condition, const auto&... what) { require<FormatError>(condition, "snac: config: ", what...); };
  const std::size_t stages = config.decoder_rates.size(), codebooks = config.vq_strides.size();
  expect(stages >= 1 && stages <= kMostStages, "expected 1 to ", kMostStages, " decoder_rates, got ", stages);
  expect(config.decoder_dim >> stages >= 1,
         "expected decoder_dim of at least 2 to the power of the number of decoder_rates, got ", config.decoder_dim);
  expect(product_of_rates(config.decoder_rates) <= kLargestFrame, "expected decoder_rates with a product of at most ",
         kLargestFrame);
  expect(codebooks >= 1 && codebooks <= kMostCodebooks, "expected 1 to ", kMostCodebooks, " vq_strides, got ", codebooks);
  expect(config.vq_strides.front() <= kLongestWindow, "expected vq_strides up to ", kLongestWindow, ", got ",
         config.vq_strides.front());
  expect(config.attn_window_size <= kLongestWindow, "expected attn_window_size up to ", kLongestWindow, ", got ",
         config.attn_window_size);
  for (const std::int64_t stride : config.vq_strides)
    expect(config.vq_strides.front() % stride == 0, "expected vq_strides that divide the first, ", config.vq_strides.front(),
           ", got ", stride);
  expect(config.attn_window_size == 0 || config.decoder_dim % kHead == 0, "expected decoder_dim to be a multiple of ", kHead,
         " with attention, got ", config.decoder_dim);
}

ResidualQuantizer quantizer_of(const SnacConfig& config) {
  return ResidualQuantizer({.input_dim = config.latent_dim,
                            .codebook_size = config.codebook_size,
                            .codebook_dims = std::vector<std::int64_t>(config.vq_strides.size(), config.codebook_dim),
                            .strides = config.vq_strides});
}

Sequential decoder_of(const SnacConfig& config, const std::shared_ptr<NoiseSource>& noise) {
  std::int64_t channels = config.decoder_dim;
  Sequential model;
  if (config.depthwise) {
    model.push_back(same_conv(config.latent_dim, config.latent_dim, 7, config.latent_dim));
    model.push_back(same_conv(config.latent_dim, channels, 1));
  } else {
    model.push_back(same_conv(config.latent_dim, channels, 7));
  }
  if (config.attn_window_size > 0) model.push_back(LocalAttention(channels, config.attn_window_size));
  std::size_t noise_block = 0;
  for (const std::int64_t rate : config.decoder_rates) {
    Sequential block(Snake(channels), upsampling(channels, channels / 2, rate, /*keeps_length=*/true));
    channels /= 2;
    if (config.noise) block.push_back(NoiseBlock(channels, noise_block++, noise));
    append_residual_units(block, {.channels = channels, .groups = config.depthwise ? channels : 1});
    model.push_back(named(concat(model.size(), ".block"), std::move(block)));
  }
  model.push_back(Snake(channels));
  model.push_back(same_conv(channels, 1, 7));
  model.push_back(Tanh());
  return model;
}

Sequential body_of(const SnacConfig& config, const std::shared_ptr<NoiseSource>& noise) {
  check(config);
  return Sequential(named("quantizer", quantizer_of(config)), named("decoder.model", decoder_of(config, noise)));
}

NetworkFormat format_of(const SnacConfig& config) {
  check(config);
  const std::int64_t positions = config.vq_strides.front();  // of the latent in a frame
  std::int64_t rows = 0;
  for (const std::int64_t stride : config.vq_strides) rows += positions / stride;
  return {.input = NetworkInput::codes,
          .rows = rows,
          .samples_per_frame = positions * product_of_rates(config.decoder_rates),
          .sampling_rate = config.sampling_rate,
          .frame_multiple = config.attn_window_size == 0 ? 1 : std::lcm(positions, config.attn_window_size) / positions};
}

}  // namespace

SnacConfig SnacConfig::parse(const std::string& text) {
  const NetworkConfig json("snac", text);
  SnacConfig config;
  config.sampling_rate = json.count_or("sampling_rate", config.sampling_rate);
  if (json.has("latent_dim")) {
    config.latent_dim = json.count("latent_dim");
  } else {
    const std::size_t stages = json.has("encoder_rates") ? json.counts("encoder_rates").size() : 4;
    json.expect(stages <= kMostStages, "expected 1 to ", kMostStages, " encoder_rates, got ", stages);
    config.latent_dim = json.count_or("encoder_dim", 64) << stages;
  }
  config.decoder_dim = json.count_or("decoder_dim", config.decoder_dim);
  if (json.has("decoder_rates")) config.decoder_rates = json.counts("decoder_rates");
  if (json.is_null("attn_window_size")) config.attn_window_size = 0;
  config.attn_window_size = json.count_or("attn_window_size", config.attn_window_size);
  config.codebook_size = json.count_or("codebook_size", config.codebook_size);
  config.codebook_dim = json.count_or("codebook_dim", config.codebook_dim);
  if (json.has("vq_strides")) config.vq_strides = json.counts("vq_strides");
  config.noise = json.flag("noise", config.noise);
  config.depthwise = json.flag("depthwise", config.depthwise);
  check(config);
  return config;
}

SnacDecoder::SnacDecoder(const SnacConfig& config) : SnacDecoder(config, std::make_shared<NoiseSource>()) {}

SnacDecoder::SnacDecoder(const SnacConfig& config, std::shared_ptr<NoiseSource> noise)
    : Network(format_of(config), body_of(config, noise)), noise_(std::move(noise)) {}

ResidualQuantizer& SnacDecoder::quantizer() { return static_cast<ResidualQuantizer&>(body()[0]); }

Tensor SnacDecoder::pack(const std::vector<Tensor>& codes) { return quantizer().pack(codes); }
std::vector<Tensor> SnacDecoder::unpack(const Tensor& packed) { return quantizer().unpack(packed); }

Tensor SnacDecoder::latent(const Tensor& packed) {
  check_input(packed);
  return quantizer().decode(packed);
}

void SnacDecoder::set_noise_seed(std::uint64_t seed) { noise_->set_seed(seed); }
void SnacDecoder::set_noise(std::vector<Tensor> rows) { noise_->set_rows(std::move(rows)); }
void SnacDecoder::without_noise() { noise_->set_zero(); }

bool SnacDecoder::is_unused(std::string_view key) const { return is_of_encoder(key); }

}  // namespace polyphase
