#include "networks/mimi.hpp"

#include <cmath>

#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/residual.hpp"
#include "layers/linear.hpp"
#include "networks/blocks/causal_layers.hpp"
#include "networks/blocks/split_rvq.hpp"
#include "networks/blocks/transformer_layer.hpp"
#include "networks/config.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kLargestHop = 1 << 20;

using Seanet = MimiConfig::Seanet;
using Transformer = MimiConfig::Transformer;

std::int64_t hop_of(const Seanet& seanet) { return bounded_product(seanet.ratios); }

/// Steps of the transformer and of SEANet for a frame of codes.
double steps_per_frame(const MimiConfig& config) {
  return static_cast<double>(config.sample_rate) / static_cast<double>(hop_of(config.seanet)) / config.frame_rate;
}

/// Residual units and the shapes between them: `model.0`, ... of the decoder. Activations are counted and have no keys.
class SeanetLayers {
 public:
  explicit SeanetLayers(const Seanet& config) : config_(config) {
    std::int64_t channels = config.n_filters << config.ratios.size();
    push(".conv.conv", conv(config.dimension, channels, config.kernel_size));
    for (const std::int64_t ratio : config.ratios) {
      push("", ELU(config.elu_alpha));
      push(".convtr.convtr",
           causal_up({.in_channels = channels, .out_channels = channels / 2, .kernel_size = 2 * ratio, .stride = ratio}));
      channels /= 2;
      for (std::int64_t i = 0, dilation = 1; i < config.n_residual_layers; ++i, dilation *= config.dilation_base)
        push("", unit(channels, dilation));
    }
    push("", ELU(config.elu_alpha));
    push(".conv.conv", conv(channels, config.channels, config.last_kernel_size));
    if (config.final_tanh) push("", Tanh());
  }
  [[nodiscard]] Sequential take() { return std::move(layers_); }

 private:
  template <class M>
  void push(const char* inside, M module) {
    layers_.push_back(named(concat("model.", layers_.size(), inside), std::move(module)));
  }
  [[nodiscard]] Conv1d conv(std::int64_t in, std::int64_t out, std::int64_t kernel_size, std::int64_t dilation = 1) const {
    return causal_conv({.in_channels = in,
                        .out_channels = out,
                        .kernel_size = kernel_size,
                        .dilation = dilation,
                        .padding_mode = config_.pads_by_replicating ? PaddingMode::replicate : PaddingMode::zeros});
  }
  [[nodiscard]] Residual unit(std::int64_t channels, std::int64_t dilation) const {
    const std::int64_t hidden = channels / config_.compress;
    return Residual(ELU(config_.elu_alpha),
                    named("1.conv.conv", conv(channels, hidden, config_.residual_kernel_size, dilation)),
                    ELU(config_.elu_alpha), named("3.conv.conv", conv(hidden, channels, 1)));
  }

  const Seanet& config_;
  Sequential layers_;
};

Linear unbiased(std::int64_t in, std::int64_t out) { return Linear({.in_features = in, .out_features = out, .bias = false}); }

TransformerLayer transformer_layer(const MimiConfig& all) {
  const Transformer& config = all.transformer;
  return TransformerLayer({.attention = {.channels = config.d_model,
                                         .heads = config.num_heads,
                                         .key_heads = config.num_heads / config.kv_repeat,
                                         .head_size = config.d_model / config.num_heads,
                                         .window = config.context,
                                         .rotates = config.rotates,
                                         .rope_base = config.max_period,
                                         .interleaved = config.interleaved,
                                         .inputs = {"in_projs.0"},
                                         .output = "out_projs.0",
                                         .sees_only_newest = all.streams_as_original},
                           .hidden = config.dim_feedforward,
                           .norm_epsilon = config.norm_epsilon,
                           .layer_scale = config.layer_scale});
}

ChannelsLast transformer(const MimiConfig& config) {
  const std::int64_t dimension = config.seanet.dimension, d_model = config.transformer.d_model;
  ChannelsLast layers;
  if (d_model != dimension) layers.push_back(named("input_proj", unbiased(dimension, d_model)));
  for (std::int64_t i = 0; i < config.transformer.num_layers; ++i)
    layers.push_back(named(concat("transformer.layers.", i), transformer_layer(config)));
  if (d_model != dimension) layers.push_back(named("output_projs.0", unbiased(d_model, dimension)));
  return layers;
}

void check_seanet(const Seanet& seanet) {
  const auto expect = [](bool condition, const auto&... what) { require<FormatError>(condition, "mimi: config: ", what...); };
  expect(!seanet.ratios.empty() && seanet.ratios.size() < 31, "expected 1 to 30 seanet.ratios, got ", seanet.ratios.size());
  expect(hop_of(seanet) <= kLargestHop, "expected a product of seanet.ratios of at most ", kLargestHop, ", got ",
         hop_of(seanet));
  expect(seanet.n_filters / seanet.compress >= 1, "expected seanet.n_filters of at least seanet.compress, got ",
         seanet.n_filters, " and ", seanet.compress);
}

void check(const MimiConfig& config) {
  check_seanet(config.seanet);
  const auto expect = [](bool condition, const auto&... what) { require<FormatError>(condition, "mimi: config: ", what...); };
  const MimiConfig::Quantizer& quantizer = config.quantizer;
  expect(quantizer.n_q > quantizer.n_q_semantic, "expected quantizer.n_q above quantizer.n_q_semantic, got ", quantizer.n_q,
         " and ", quantizer.n_q_semantic);
  const Transformer& transformer = config.transformer;
  expect(transformer.d_model % transformer.num_heads == 0 && transformer.d_model / transformer.num_heads % 2 == 0,
         "expected transformer.d_model to be an even number of transformer.num_heads, got ", transformer.d_model, " and ",
         transformer.num_heads);
  expect(transformer.num_heads % transformer.kv_repeat == 0,
         "expected transformer.num_heads divisible by transformer.kv_repeat, got ", transformer.num_heads, " and ",
         transformer.kv_repeat);
  const double steps = steps_per_frame(config);
  expect(steps >= 1 && steps == std::floor(steps) && steps < 1e6,
         "expected sample_rate to be a multiple of frame_rate and of the product of seanet.ratios, got ", config.sample_rate,
         ", ", config.frame_rate, " and ", hop_of(config.seanet));
  expect(!config.streams_as_original || (transformer.context > 0 && static_cast<double>(transformer.context) >= steps),
         "expected transformer.context of at least the ", steps, " steps of a frame, got ", transformer.context);
}

Sequential decoder(const MimiConfig& config) {
  check(config);
  const auto steps = static_cast<std::int64_t>(steps_per_frame(config));
  const std::int64_t dimension = config.seanet.dimension;
  Sequential net;
  net.push_back(named("quantizer", SplitRvq({.codebooks = config.quantizer.n_q,
                                             .first = config.quantizer.n_q_semantic,
                                             .size = config.quantizer.bins,
                                             .channels = config.quantizer.dimension,
                                             .output_channels = dimension})));
  if (steps > 1)
    net.push_back(named("upsample.convtr.convtr.convtr", causal_up({.in_channels = dimension,
                                                                    .out_channels = dimension,
                                                                    .kernel_size = 2 * steps,
                                                                    .stride = steps,
                                                                    .groups = dimension,
                                                                    .bias = false})));
  net.push_back(named("decoder_transformer", transformer(config)));
  net.push_back(named("decoder", SeanetLayers(config.seanet).take()));
  return net;
}

// ---- the JSON
// -----------------------------------------------------------------------------------------------------------------

/// Absent entries have the defaults of the original's constructors.
Seanet parse_seanet(const NetworkConfig& json) {
  const std::string activation = json.text("activation", "ELU"), norm = json.text("norm", "none"),
                    padding = json.text("pad_mode", "constant"), last = json.text("final_activation", "none");
  json.expect(activation == "ELU", "expected seanet.activation ELU, got ", activation);
  json.expect(norm == "none" || norm == "weight_norm", "expected seanet.norm none or weight_norm, got ", norm);
  json.expect(padding == "constant" || padding == "replicate", "expected seanet.pad_mode constant or replicate, got ", padding);
  json.expect(last == "none" || last == "Tanh", "expected seanet.final_activation Tanh or null, got ", last);
  json.expect(json.flag("causal", true), "expected seanet.causal true, got false");
  json.expect(json.flag("true_skip", true), "expected seanet.true_skip true, got false");
  json.expect(json.number("trim_right_ratio", 1) == 1, "expected seanet.trim_right_ratio 1, got ",
              json.number("trim_right_ratio", 1));
  return {.channels = json.count_or("channels", 1),
          .dimension = json.count_or("dimension", 128),
          .n_filters = json.count_or("n_filters", 32),
          .n_residual_layers = json.count_or("n_residual_layers", 3, 0),
          .ratios = json.counts("ratios"),
          .kernel_size = json.count_or("kernel_size", 7),
          .last_kernel_size = json.count_or("last_kernel_size", 7),
          .residual_kernel_size = json.count_or("residual_kernel_size", 3),
          .dilation_base = json.count_or("dilation_base", 2),
          .compress = json.count_or("compress", 2),
          .elu_alpha = json.has("activation_params") ? json.object("activation_params").number("alpha", 1) : 1,
          .pads_by_replicating = padding == "replicate",
          .final_tanh = last == "Tanh"};
}

Transformer parse_transformer(const NetworkConfig& json, std::int64_t dimension) {
  const std::string norm = json.text("norm", "layer_norm"), gating = json.text("gating", "none"),
                    positions = json.text("positional_embedding", "sin");
  json.expect(norm == "layer_norm" || norm == "layer_norm_f32", "expected transformer.norm layer_norm or layer_norm_f32, got ",
              norm);
  json.expect(gating == "none", "expected transformer.gating none, got ", gating);
  json.expect(positions == "rope" || positions == "rope_concat" || positions == "none",
              "expected transformer.positional_embedding rope, rope_concat or none, got ", positions);
  json.expect(json.flag("causal", false), "expected transformer.causal true, got false");
  json.expect(json.flag("conv_layout", false), "expected transformer.conv_layout true, got false");
  json.expect(json.count("input_dimension") == dimension, "expected transformer.input_dimension of seanet.dimension, ",
              dimension, ", got ", json.count("input_dimension"));
  json.expect(json.counts("output_dimensions") == std::vector{dimension},
              "expected transformer.output_dimensions of seanet.dimension, ", dimension, ", alone");
  Transformer config{.d_model = json.count("d_model"),
                     .num_heads = json.count("num_heads"),
                     .kv_repeat = json.count_or("kv_repeat", 1),
                     .num_layers = json.count("num_layers"),
                     .dim_feedforward = json.count_or("dim_feedforward", 2048),
                     .context = json.count_or("context", 0),
                     .max_period = json.number("max_period", 10000),
                     .rotates = positions != "none",
                     .interleaved = positions == "rope",
                     .layer_scale = std::nullopt,
                     .norm_epsilon = norm == "layer_norm" ? 1e-5 : 1e-8};
  if (json.has("layer_scale")) config.layer_scale = json.number("layer_scale", 0);
  return config;
}

MimiConfig::Quantizer parse_quantizer(const NetworkConfig& json, std::int64_t dimension) {
  const MimiConfig::Quantizer config{.dimension = json.count_or("dimension", 128),
                                     .n_q = json.count_or("n_q", 8),
                                     .n_q_semantic = json.count_or("n_q_semantic", 1),
                                     .bins = json.count_or("bins", 1024)};
  json.expect(json.count_or("output_dimension", config.dimension) == dimension,
              "expected quantizer.output_dimension of seanet.dimension, ", dimension, ", got ",
              json.count_or("output_dimension", config.dimension));
  return config;
}

}  // namespace

MimiConfig MimiConfig::parse(const std::string& text) {
  const NetworkConfig json("mimi", text);
  MimiConfig config;
  config.seanet = parse_seanet(json.object("seanet"));
  config.quantizer = parse_quantizer(json.object("quantizer"), config.seanet.dimension);
  config.transformer = parse_transformer(json.object("transformer"), config.seanet.dimension);
  config.sample_rate = json.count("sample_rate");
  config.frame_rate = json.number("frame_rate", 0);
  json.expect(config.frame_rate > 0, "expected frame_rate above 0, got ", config.frame_rate);
  check(config);
  return config;
}

Mimi::Mimi(const MimiConfig& config)
    : Network({.input = NetworkInput::codes,
               .rows = config.quantizer.n_q,
               .samples_per_frame = hop_of(config.seanet) * static_cast<std::int64_t>(steps_per_frame(config)),
               .audio_channels = config.seanet.channels,
               .sampling_rate = config.sample_rate,
               .least_rows = config.quantizer.n_q_semantic},
              decoder(config)) {}

Tensor Mimi::latent(const Tensor& codes) {
  check_input(codes);
  return body()[0](codes);
}

bool Mimi::is_unused(std::string_view key) const {
  for (const std::string_view other : {"encoder.", "encoder_transformer.", "downsample."})
    if (key.starts_with(other)) return true;
  if (!key.starts_with("quantizer.")) return false;
  return key.ends_with(".input_proj.weight") || key.ends_with("._codebook._initialized") || key.ends_with("._codebook.inited");
}

std::string Mimi::own_name(std::string_view key) const {
  // What moshi's load hooks rename.
  constexpr std::pair<std::string_view, std::string_view> kOlder[] = {
      {".self_attn.in_proj_weight", ".self_attn.in_projs.0.weight"},
      {".self_attn.in_proj.weight", ".self_attn.in_projs.0.weight"},
      {".self_attn.out_proj.weight", ".self_attn.out_projs.0.weight"},
      {"._codebook.cluster_size", "._codebook.cluster_usage"},
      {"._codebook.embed_avg", "._codebook.embedding_sum"},
      {"._codebook.embed_sum", "._codebook.embedding_sum"},
  };
  for (const auto& [older, own] : kOlder)
    if (key.ends_with(older)) return concat(key.substr(0, key.size() - older.size()), own);
  return std::string(key);
}

}  // namespace polyphase
