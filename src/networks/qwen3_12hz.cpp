#include "networks/qwen3_12hz.hpp"

#include <algorithm>
#include <memory>

#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/residual.hpp"
#include "layers/linear.hpp"
#include "layers/norm.hpp"
#include "networks/blocks/causal_attention.hpp"
#include "networks/blocks/causal_layers.hpp"
#include "networks/blocks/gated_mlp.hpp"
#include "networks/blocks/split_rvq.hpp"
#include "networks/config.hpp"
#include "ops/length.hpp"

namespace polyphase {
namespace {

using Config = Qwen3Tts12HzConfig;

constexpr std::int64_t kMostSamplesPerFrame = 1 << 20;

std::int64_t samples_per_frame(const Config& config) {
  std::vector<std::int64_t> factors = config.upsampling_ratios;
  factors.insert(factors.end(), config.upsample_rates.begin(), config.upsample_rates.end());
  return bounded_product(factors);
}

std::shared_ptr<Module> activation(Config::HiddenAct act) {
  if (act == Config::HiddenAct::gelu) return std::make_shared<GELU>();
  if (act == Config::HiddenAct::relu) return std::make_shared<ReLU>();
  return std::make_shared<SiLU>();
}

RMSNorm norm(const Config& config) { return RMSNorm({.normalized_shape = config.hidden_size, .epsilon = config.rms_norm_eps}); }

LayerScale scale(const Config& config) {
  return LayerScale({.channels = config.hidden_size, .init = config.layer_scale_initial_scale, .name = "scale"});
}

Sequential transformer_layer(const Config& config) {
  CausalAttention attention({.channels = config.hidden_size,
                             .heads = config.num_attention_heads,
                             .key_heads = config.num_key_value_heads,
                             .head_size = config.head_dim,
                             .window = config.sliding_window,
                             .rope_base = config.rope_theta,
                             .bias = config.attention_bias,
                             .inputs = {"q_proj", "k_proj", "v_proj"},
                             .output = "o_proj"});
  GatedMlp mlp(
      {.channels = config.hidden_size, .hidden = config.intermediate_size, .activation = activation(config.hidden_act)});
  return Sequential(
      named("", Residual({.name = ""}, named("input_layernorm", norm(config)), named("self_attn", std::move(attention)),
                         named("self_attn_layer_scale", scale(config)))),
      named("", Residual({.name = ""}, named("post_attention_layernorm", norm(config)), named("mlp", std::move(mlp)),
                         named("mlp_layer_scale", scale(config)))));
}

ChannelsLast transformer(const Config& config) {
  ChannelsLast layers;
  layers.push_back(named("input_proj", Linear({.in_features = config.latent_dim, .out_features = config.hidden_size})));
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
    layers.push_back(named(concat("layers.", i), transformer_layer(config)));
  layers.push_back(named("norm", norm(config)));
  layers.push_back(named("output_proj", Linear({.in_features = config.hidden_size, .out_features = config.latent_dim})));
  return layers;
}

/// Liu et al., arXiv 2201.03545.
Residual convnext_block(std::int64_t channels) {
  return Residual(
      {.name = ""},
      named("dwconv.conv",
            causal_conv({.in_channels = channels, .out_channels = channels, .kernel_size = 7, .groups = channels})),
      named("", ChannelsLast(named("norm", LayerNorm({.normalized_shape = channels, .epsilon = 1e-6})),
                             named("pwconv1", Linear({.in_features = channels, .out_features = 4 * channels})), GELU(),
                             named("pwconv2", Linear({.in_features = 4 * channels, .out_features = channels})),
                             named("", LayerScale({.channels = channels, .init = 1e-6})))));
}

Conv1d conv(std::int64_t in, std::int64_t out, std::int64_t kernel_size, std::int64_t dilation = 1) {
  return causal_conv({.in_channels = in, .out_channels = out, .kernel_size = kernel_size, .dilation = dilation});
}

SnakeBeta snake(std::int64_t channels) { return SnakeBeta(channels, {.alpha_logscale = true}); }

Residual residual_unit(std::int64_t channels, std::int64_t dilation) {
  return Residual({.name = ""}, named("act1", snake(channels)), named("conv1.conv", conv(channels, channels, 7, dilation)),
                  named("act2", snake(channels)), named("conv2.conv", conv(channels, channels, 1)));
}

Sequential block(std::int64_t channels, std::int64_t rate) {
  Sequential layers(
      named("block.0", snake(channels)),
      named("block.1.conv",
            causal_up({.in_channels = channels, .out_channels = channels / 2, .kernel_size = 2 * rate, .stride = rate})));
  for (const std::int64_t dilation : {1, 3, 9})
    layers.push_back(named(concat("block.", layers.size()), residual_unit(channels / 2, dilation)));
  return layers;
}

void check(const Config& config) {
  const auto expect = [](bool condition, const auto&... what) {
    require<FormatError>(condition, "qwen3_12hz: config: ", what...);
  };
  expect(config.codebook_dim >= 2 && config.codebook_dim % 2 == 0, "expected an even codebook_dim, got ", config.codebook_dim);
  expect(config.num_quantizers >= 2, "expected num_quantizers of at least 2, got ", config.num_quantizers);
  expect(config.head_dim >= 2 && config.head_dim % 2 == 0, "expected an even head_dim, got ", config.head_dim);
  expect(config.num_attention_heads % config.num_key_value_heads == 0,
         "expected num_attention_heads divisible by num_key_value_heads, got ", config.num_attention_heads, " and ",
         config.num_key_value_heads);
  expect(samples_per_frame(config) <= kMostSamplesPerFrame,
         "expected a product of upsampling_ratios and upsample_rates of at most ", kMostSamplesPerFrame, ", got ",
         samples_per_frame(config));
  expect(config.upsample_rates.size() < 31 && config.decoder_dim >> config.upsample_rates.size() >= 1,
         "expected decoder_dim of at least 2 to the power of the number of upsample_rates, got ", config.decoder_dim);
}

Sequential decoder(const Config& config) {
  check(config);
  const std::int64_t latent = config.latent_dim;
  Sequential net;
  net.push_back(named("quantizer", SplitRvq({.codebooks = config.num_quantizers,
                                             .size = config.codebook_size,
                                             .channels = config.codebook_dim / 2,
                                             .output_channels = config.codebook_dim})));
  net.push_back(named("pre_conv.conv", conv(config.codebook_dim, latent, 3)));
  net.push_back(named("pre_transformer", transformer(config)));
  for (std::size_t i = 0; i < config.upsampling_ratios.size(); ++i) {
    const std::int64_t ratio = config.upsampling_ratios[i];
    net.push_back(named(concat("upsample.", i, ".0.conv"),
                        causal_up({.in_channels = latent, .out_channels = latent, .kernel_size = ratio, .stride = ratio})));
    net.push_back(named(concat("upsample.", i, ".1"), convnext_block(latent)));
  }
  std::int64_t channels = config.decoder_dim;
  std::size_t number = 0;
  net.push_back(named(concat("decoder.", number++, ".conv"), conv(latent, channels, 7)));
  for (const std::int64_t rate : config.upsample_rates) {
    net.push_back(named(concat("decoder.", number++), block(channels, rate)));
    channels /= 2;
  }
  net.push_back(named(concat("decoder.", number), snake(channels)));
  net.push_back(named(concat("decoder.", number + 1, ".conv"), conv(channels, 1, 7)));
  net.push_back(Clamp(-1, 1));
  return net;
}

Config::HiddenAct hidden_act_of(const NetworkConfig& json) {
  const std::string act = json.text("hidden_act", "silu");
  json.expect(act == "silu" || act == "gelu" || act == "relu", "expected hidden_act silu, gelu or relu, got ", act);
  return act == "gelu" ? Config::HiddenAct::gelu : act == "relu" ? Config::HiddenAct::relu : Config::HiddenAct::silu;
}

Config parse_decoder(const NetworkConfig& json) {
  Config config{.codebook_size = json.count_or("codebook_size", 2048),
                .codebook_dim = json.count("codebook_dim"),
                .num_quantizers = json.count_or("num_quantizers", 16),
                .latent_dim = json.count_or("latent_dim", 1024),
                .hidden_size = json.count_or("hidden_size", 1024),
                .num_hidden_layers = json.count_or("num_hidden_layers", 8),
                .num_attention_heads = json.count_or("num_attention_heads", 16),
                .num_key_value_heads = json.count_or("num_key_value_heads", 16),
                .attention_bias = json.flag("attention_bias", false),
                .sliding_window = json.count_or("sliding_window", 72),
                .rope_theta = json.number("rope_theta", 10000),
                .intermediate_size = json.count_or("intermediate_size", 3072),
                .hidden_act = hidden_act_of(json),
                .rms_norm_eps = json.number("rms_norm_eps", 1e-5),
                .layer_scale_initial_scale = json.number("layer_scale_initial_scale", 0.01),
                .decoder_dim = json.count_or("decoder_dim", 1536)};
  if (json.has("upsampling_ratios")) config.upsampling_ratios = json.counts("upsampling_ratios");
  if (json.has("upsample_rates")) config.upsample_rates = json.counts("upsample_rates");
  json.expect(json.has("head_dim") || config.hidden_size % config.num_attention_heads == 0,
              "expected hidden_size divisible by num_attention_heads, got ", config.hidden_size, " and ",
              config.num_attention_heads);
  config.head_dim = json.count_or("head_dim", config.hidden_size / config.num_attention_heads);
  json.expect(!json.has("rope_scaling"), "expected no rope_scaling, the published models have none");
  return config;
}

}  // namespace

Config Config::parse(const std::string& text) {
  const NetworkConfig json("qwen3_12hz", text);
  Config config = parse_decoder(json.has("decoder_config") ? json.object("decoder_config") : json);
  config.sampling_rate = json.count_or("output_sample_rate", 24000);
  check(config);
  return config;
}

Qwen3Tts12Hz::Qwen3Tts12Hz(const Config& config)
    : Network({.input = NetworkInput::codes,
               .rows = config.num_quantizers,
               .samples_per_frame = samples_per_frame(config),
               .sampling_rate = config.sampling_rate},
              decoder(config)) {}

Tensor Qwen3Tts12Hz::chunked_decode(const Tensor& codes, std::int64_t chunk_size, std::int64_t left_context_size) {
  check_input(codes);
  require<ShapeError>(chunk_size >= 1 && left_context_size >= 0,
                      "chunked_decode: expected chunk_size >= 1 and left_context_size >= 0, got ", chunk_size, " and ",
                      left_context_size);
  std::vector<Tensor> pieces;
  for (std::int64_t start = 0; start < codes.size(2); start += chunk_size) {
    const std::int64_t context = std::min(start, left_context_size), end = std::min(start + chunk_size, codes.size(2));
    const Tensor audio = forward(codes.narrow(2, start - context, end - start + context));
    const std::int64_t dropped = context * format().samples_per_frame;
    pieces.push_back(audio.narrow(2, dropped, audio.size(2) - dropped));
  }
  return cat(pieces, 2);
}

bool Qwen3Tts12Hz::is_unused(std::string_view key) const {
  return key.starts_with("encoder.") || key.ends_with(".rotary_emb.inv_freq") ||
         (key.ends_with(".input_proj.weight") && key.find("quantizer.rvq_") != key.npos);
}

std::string Qwen3Tts12Hz::own_name(std::string_view key) const {
  // The tokenizer's checkpoint has the decoder under "decoder.", where the decoder's own keys go on with a number.
  constexpr std::string_view kPrefix = "decoder.";
  const bool is_whole =
      key.starts_with(kPrefix) && key.size() > kPrefix.size() && (key[kPrefix.size()] < '0' || key[kPrefix.size()] > '9');
  return std::string(is_whole ? key.substr(kPrefix.size()) : key);
}

}  // namespace polyphase
