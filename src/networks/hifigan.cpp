#include "networks/hifigan.hpp"

#include "layers/activations.hpp"
#include "layers/containers/residual.hpp"
#include "networks/blocks/generator.hpp"
#include "networks/blocks/input_normalization.hpp"

namespace polyphase {
namespace {

constexpr const char* kHifigan = "hifigan";
constexpr double kSlope = 0.1;       // everywhere but before the last layer,
constexpr double kLastSlope = 0.01;  // where the original leaves PyTorch's default

/// Convolutions with a residual around each of them (resblock 2) or around each pair (resblock 1).
Sequential residual_block(std::int64_t channels, std::int64_t kernel_size, const std::vector<std::int64_t>& dilations,
                          bool two_convolutions) {
  Sequential block;
  for (std::size_t i = 0; i < dilations.size(); ++i) {
    const auto own = [&](const char* list, std::int64_t dilation) {
      return named(concat(list, ".", i), networks::same_length(channels, kernel_size, dilation));
    };
    if (two_convolutions)
      block.push_back(named(
          "", Residual({.name = ""}, LeakyReLU(kSlope), own("convs1", dilations[i]), LeakyReLU(kSlope), own("convs2", 1))));
    else
      block.push_back(named("", Residual({.name = ""}, LeakyReLU(kSlope), own("convs", dilations[i]))));
  }
  return block;
}

Sequential generator(const HifiGanConfig& config) {
  networks::check_generator(kHifigan, config);
  Sequential net;
  if (config.normalizes_input) net.push_back(named("", InputNormalization(config.num_mels)));
  const std::int64_t channels = networks::add_stages(
      net, config, "", [](Sequential& stages) { stages.push_back(LeakyReLU(kSlope)); },
      [&](std::int64_t width, std::int64_t kernel_size, const std::vector<std::int64_t>& dilations) {
        return residual_block(width, kernel_size, dilations, config.two_convolutions);
      });
  net.push_back(LeakyReLU(kLastSlope));
  net.push_back(
      named("conv_post",
            Conv1d({.in_channels = channels, .out_channels = 1, .kernel_size = 7, .padding = 3, .bias = config.final_bias})));
  net.push_back(Tanh());
  return net;
}

}  // namespace

HifiGanConfig HifiGanConfig::parse(const std::string& text) {
  const NetworkConfig json(kHifigan, text);
  HifiGanConfig config;
  networks::read_generator(json, config);
  config.final_bias = json.flag("final_bias", true);
  config.normalizes_input = json.flag("normalize_before", false);
  networks::check_generator(kHifigan, config);
  return config;
}

HifiGan::HifiGan(const HifiGanConfig& config) : Network(networks::generator_format(config), generator(config)) {}

}  // namespace polyphase
