#include "networks/oobleck.hpp"

#include <memory>
#include <utility>

#include "layers/activations.hpp"
#include "layers/antialiased_activation.hpp"
#include "layers/upsample.hpp"
#include "networks/blocks/snake_blocks.hpp"
#include "networks/config.hpp"

namespace polyphase {
namespace {

void check(const OobleckConfig& config) {
  const auto expect = [](bool condition, const auto&... what) {
    require<FormatError>(condition, "oobleck: config: ", what...);
  };
  const std::size_t stages = config.strides.size();
  expect(stages >= 1 && stages <= kMostStages, "expected 1 to ", kMostStages, " strides, got ", stages);
  expect(config.c_mults.size() == stages, "expected as many c_mults as strides, got ", config.c_mults.size(), " and ", stages);
  expect(product_of_rates(config.strides) <= kLargestFrame, "expected strides with a product of at most ", kLargestFrame);
  for (const std::int64_t multiple : config.c_mults)
    expect(multiple <= kLargestFrame && config.channels <= kLargestFrame, "expected channels and c_mults of at most ",
           kLargestFrame, ", got ", config.channels, " and ", multiple);
}

/// In a residual unit.
MakeActivation activation_of(const OobleckConfig& config) {
  return [uses_snake = config.use_snake](std::int64_t channels) -> std::shared_ptr<Module> {
    if (!uses_snake) return std::make_shared<ELU>();
    return std::make_shared<SnakeBeta>(channels, SnakeOptions{.alpha_logscale = true});
  };
}

/// Between the stages.
MakeActivation outer_activation_of(const OobleckConfig& config) {
  if (!config.antialias_activation) return activation_of(config);
  return [plain = activation_of(config)](std::int64_t channels) -> std::shared_ptr<Module> {
    return std::make_shared<AntialiasedActivation>(plain(channels), AntialiasedActivation::Options{});
  };
}

std::shared_ptr<Module> upsampler(std::int64_t in, std::int64_t out, std::int64_t stride, bool is_nearest) {
  if (!is_nearest) return std::make_shared<ConvTranspose1d>(upsampling(in, out, stride));
  return std::make_shared<Sequential>(
      Upsample({.scale_factor = stride}),
      Conv1d({.in_channels = in, .out_channels = out, .kernel_size = 2 * stride, .padding = Padding::same(), .bias = false}));
}

Sequential decoder(const OobleckConfig& config) {
  check(config);
  const MakeActivation outer = outer_activation_of(config);
  std::int64_t channels = config.c_mults.back() * config.channels;
  Sequential layers;
  layers.push_back(same_conv(config.latent_dim, channels, 7));
  for (std::size_t i = config.strides.size(); i-- > 0;) {
    const std::int64_t next = (i == 0 ? 1 : config.c_mults[i - 1]) * config.channels;
    Sequential block;
    block.push_back(outer(channels));
    block.push_back(upsampler(channels, next, config.strides[i], config.use_nearest_upsample));
    append_residual_units(block, {.channels = next, .activation = activation_of(config), .name = "layers"});
    layers.push_back(named(concat(layers.size(), ".layers"), std::move(block)));
    channels = next;
  }
  layers.push_back(outer(channels));
  layers.push_back(same_conv(channels, config.out_channels, 7, /*groups=*/1, /*bias=*/false));
  if (config.final_tanh) layers.push_back(Tanh());
  return layers;
}

}  // namespace

OobleckConfig OobleckConfig::parse(const std::string& text) {
  const NetworkConfig json("oobleck", text);
  const NetworkConfig model = json.object("model");
  const NetworkConfig whole = model.has("pretransform") ? model.object("pretransform").object("config") : model;
  const NetworkConfig decoder = whole.object("decoder");
  const std::string type = decoder.text("type");
  decoder.expect(type == "oobleck", "expected a decoder of type oobleck, got ", type);
  const NetworkConfig given = decoder.object("config");
  OobleckConfig config;
  config.out_channels = given.count_or("out_channels", config.out_channels);
  config.channels = given.count_or("channels", config.channels);
  if (given.has("c_mults")) config.c_mults = given.counts("c_mults");
  if (given.has("strides")) config.strides = given.counts("strides");
  config.latent_dim = given.count_or("latent_dim", config.latent_dim);
  config.use_snake = given.flag("use_snake", config.use_snake);
  config.antialias_activation = given.flag("antialias_activation", config.antialias_activation);
  config.use_nearest_upsample = given.flag("use_nearest_upsample", config.use_nearest_upsample);
  config.final_tanh = given.flag("final_tanh", config.final_tanh);
  config.sample_rate = json.count_or("sample_rate", 0, 0);
  check(config);
  return config;
}

OobleckDecoder::OobleckDecoder(const OobleckConfig& config)
    : Network({.input = NetworkInput::latent,
               .rows = config.latent_dim,
               .samples_per_frame = product_of_rates(config.strides),
               .audio_channels = config.out_channels,
               .sampling_rate = config.sample_rate},
              Sequential(named("decoder.layers", decoder(config)))) {}

bool OobleckDecoder::is_unused(std::string_view key) const { return is_of_encoder(key) || key.starts_with("bottleneck."); }

}  // namespace polyphase
