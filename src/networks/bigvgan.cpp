#include "networks/bigvgan.hpp"

#include "layers/activations.hpp"
#include "layers/antialiased_activation.hpp"
#include "layers/containers/residual.hpp"
#include "networks/blocks/generator.hpp"

namespace polyphase {
namespace {

constexpr const char* kName = "bigvgan";

AntialiasedActivation activation(std::int64_t channels, const BigVganConfig& config) {
  const SnakeOptions options{.alpha_logscale = config.log_scale};
  return config.has_beta ? AntialiasedActivation(SnakeBeta(channels, options))
                         : AntialiasedActivation(Snake(channels, options));
}

/// Convolutions with a residual around each of them (AMPBlock2) or around each pair (AMPBlock1), an activation before each.
Sequential amp_block(std::int64_t channels, std::int64_t kernel_size, const std::vector<std::int64_t>& dilations,
                     const BigVganConfig& config) {
  Sequential block;
  std::size_t activations = 0;
  const auto next_activation = [&] { return named(concat("activations.", activations++), activation(channels, config)); };
  for (std::size_t i = 0; i < dilations.size(); ++i) {
    const auto own = [&](const char* list, std::int64_t dilation) {
      return named(concat(list, ".", i), networks::same_length(channels, kernel_size, dilation));
    };
    auto before = next_activation();
    if (config.two_convolutions)
      block.push_back(named(
          "", Residual({.name = ""}, std::move(before), own("convs1", dilations[i]), next_activation(), own("convs2", 1))));
    else
      block.push_back(named("", Residual({.name = ""}, std::move(before), own("convs", dilations[i]))));
  }
  return block;
}

Sequential generator(const BigVganConfig& config) {
  networks::check_generator(kName, config);
  Sequential net;
  const std::int64_t channels = networks::add_stages(
      net, config, ".0", [](Sequential&) {},
      [&](std::int64_t width, std::int64_t kernel_size, const std::vector<std::int64_t>& dilations) {
        return amp_block(width, kernel_size, dilations, config);
      });
  net.push_back(named("activation_post", activation(channels, config)));
  net.push_back(
      named("conv_post",
            Conv1d({.in_channels = channels, .out_channels = 1, .kernel_size = 7, .padding = 3, .bias = config.final_bias})));
  if (config.final_tanh)
    net.push_back(Tanh());
  else
    net.push_back(Clamp(-1, 1));
  return net;
}

}  // namespace

BigVganConfig BigVganConfig::parse(const std::string& text) {
  const NetworkConfig json(kName, text);
  BigVganConfig config;
  networks::read_generator(json, config);
  const std::string activation = json.text("activation");
  json.expect(activation == "snake" || activation == "snakebeta", "expected activation snake or snakebeta, got ", activation);
  config.has_beta = activation == "snakebeta";
  config.log_scale = json.flag("snake_logscale", true);
  config.final_tanh = json.flag("use_tanh_at_final", true);
  config.final_bias = json.flag("use_bias_at_final", true);
  networks::check_generator(kName, config);
  return config;
}

BigVgan::BigVgan(const BigVganConfig& config) : Network(networks::generator_format(config), generator(config)) {}

}  // namespace polyphase
