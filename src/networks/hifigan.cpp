#include "networks/hifigan.hpp"

#include <functional>
#include <numeric>

#include "layers/activations.hpp"
#include "layers/containers/mean_of_branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "networks/config.hpp"
#include "networks/input_normalization.hpp"

namespace polyphase {
namespace {

constexpr double kSlope = 0.1;       // everywhere but before the last layer,
constexpr double kLastSlope = 0.01;  // where the original leaves PyTorch's default

Conv1d same_length(std::int64_t channels, std::int64_t kernel_size, std::int64_t dilation) {
  return Conv1d({.in_channels = channels,
                 .out_channels = channels,
                 .kernel_size = kernel_size,
                 .padding = (kernel_size * dilation - dilation) / 2,
                 .dilation = dilation});
}

/// Convolutions with a residual around each of them (resblock 2) or around each pair (resblock 1).
Sequential residual_block(std::int64_t channels, std::int64_t kernel_size, const std::vector<std::int64_t>& dilations,
                          bool two_convolutions) {
  Sequential block;
  for (std::size_t i = 0; i < dilations.size(); ++i) {
    const auto own = [&](const char* list, std::int64_t dilation) {
      return named(concat(list, ".", i), same_length(channels, kernel_size, dilation));
    };
    if (two_convolutions)
      block.push_back(named(
          "", Residual({.name = ""}, LeakyReLU(kSlope), own("convs1", dilations[i]), LeakyReLU(kSlope), own("convs2", 1))));
    else
      block.push_back(named("", Residual({.name = ""}, LeakyReLU(kSlope), own("convs", dilations[i]))));
  }
  return block;
}

void check(const HifiGanConfig& config) {
  const auto expect = [](bool condition, const auto&... what) {
    require<FormatError>(condition, "hifigan: config: ", what...);
  };
  expect(!config.upsample_rates.empty() && config.upsample_rates.size() == config.upsample_kernel_sizes.size(),
         "expected as many upsample_kernel_sizes as upsample_rates");
  expect(!config.resblock_kernel_sizes.empty() && config.resblock_kernel_sizes.size() == config.resblock_dilation_sizes.size(),
         "expected as many resblock_dilation_sizes as resblock_kernel_sizes");
  for (std::size_t i = 0; i < config.upsample_rates.size(); ++i)
    expect(config.upsample_kernel_sizes[i] >= config.upsample_rates[i],
           "expected upsample_kernel_sizes of at least their rates, got ", config.upsample_kernel_sizes[i], " for ",
           config.upsample_rates[i]);
  expect(config.upsample_rates.size() < 31 && config.upsample_initial_channel >> config.upsample_rates.size() >= 1,
         "expected upsample_initial_channel of at least 2 to the power of the number of upsample_rates, got ",
         config.upsample_initial_channel);
}

Sequential generator(const HifiGanConfig& config) {
  check(config);
  std::int64_t channels = config.upsample_initial_channel;
  Sequential net;
  if (config.normalizes_input) net.push_back(named("", InputNormalization(config.num_mels)));
  net.push_back(
      named("conv_pre", Conv1d({.in_channels = config.num_mels, .out_channels = channels, .kernel_size = 7, .padding = 3})));
  std::size_t block = 0;
  for (std::size_t stage = 0; stage < config.upsample_rates.size(); ++stage) {
    const std::int64_t kernel_size = config.upsample_kernel_sizes[stage], rate = config.upsample_rates[stage];
    net.push_back(LeakyReLU(kSlope));
    net.push_back(named(concat("ups.", stage), ConvTranspose1d({.in_channels = channels,
                                                                .out_channels = channels / 2,
                                                                .kernel_size = kernel_size,
                                                                .stride = rate,
                                                                .padding = (kernel_size - rate) / 2})));
    channels /= 2;
    MeanOfBranches mean;
    for (std::size_t i = 0; i < config.resblock_kernel_sizes.size(); ++i)
      mean.push_back(
          named(concat("resblocks.", block++), residual_block(channels, config.resblock_kernel_sizes[i],
                                                              config.resblock_dilation_sizes[i], config.two_convolutions)));
    net.push_back(named("", std::move(mean)));
  }
  net.push_back(LeakyReLU(kLastSlope));
  net.push_back(
      named("conv_post",
            Conv1d({.in_channels = channels, .out_channels = 1, .kernel_size = 7, .padding = 3, .bias = config.final_bias})));
  net.push_back(Tanh());
  return net;
}

}  // namespace

HifiGanConfig HifiGanConfig::parse(const std::string& text) {
  const NetworkConfig json("hifigan", text);
  const std::string kind = json.text("resblock");
  json.expect(kind == "1" || kind == "2", "expected resblock 1 or 2, got ", kind);
  HifiGanConfig config{.two_convolutions = kind == "1",
                       .upsample_rates = json.counts("upsample_rates"),
                       .upsample_kernel_sizes = json.counts("upsample_kernel_sizes"),
                       .upsample_initial_channel = json.count("upsample_initial_channel"),
                       .resblock_kernel_sizes = json.counts("resblock_kernel_sizes"),
                       .resblock_dilation_sizes = json.lists_of_counts("resblock_dilation_sizes"),
                       .num_mels = json.count_or("num_mels", 80),
                       .sampling_rate = json.count_or("sampling_rate", 0, 0),
                       .final_bias = json.flag("final_bias", true),
                       .normalizes_input = json.flag("normalize_before", false)};
  check(config);
  return config;
}

HifiGan::HifiGan(const HifiGanConfig& config)
    : Network({.input = NetworkInput::mel,
               .rows = config.num_mels,
               .samples_per_frame = std::accumulate(config.upsample_rates.begin(), config.upsample_rates.end(), std::int64_t{1},
                                                    std::multiplies<>()),
               .sampling_rate = config.sampling_rate},
              generator(config)) {}

}  // namespace polyphase
