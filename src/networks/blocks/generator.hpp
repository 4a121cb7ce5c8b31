#pragma once
// What the generators of HiFi-GAN and BigVGAN share. Internal.

#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "layers/containers/mean_of_branches.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "networks/config.hpp"
#include "networks/generator_config.hpp"
#include "networks/network.hpp"

namespace polyphase::networks {

/// Throws FormatError "NETWORK: config: ..." where the numbers do not go together.
inline void check_generator(const char* network, const GeneratorConfig& config) {
  const auto expect = [network](bool condition, const auto&... what) {
    require<FormatError>(condition, network, ": config: ", what...);
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

/// Reads the entries that both have under the same key. Throws FormatError naming the one that is missing or does not fit.
inline void read_generator(const NetworkConfig& json, GeneratorConfig& config) {
  const std::string kind = json.text("resblock");
  json.expect(kind == "1" || kind == "2", "expected resblock 1 or 2, got ", kind);
  config.two_convolutions = kind == "1";
  config.upsample_rates = json.counts("upsample_rates");
  config.upsample_kernel_sizes = json.counts("upsample_kernel_sizes");
  config.upsample_initial_channel = json.count("upsample_initial_channel");
  config.resblock_kernel_sizes = json.counts("resblock_kernel_sizes");
  config.resblock_dilation_sizes = json.lists_of_counts("resblock_dilation_sizes");
  config.num_mels = json.count_or("num_mels", 80);
  config.sampling_rate = json.count_or("sampling_rate", 0, 0);
}

/// Mels in, audio out.
[[nodiscard]] inline NetworkFormat generator_format(const GeneratorConfig& config) {
  return {.input = NetworkInput::mel,
          .rows = config.num_mels,
          .samples_per_frame =
              std::accumulate(config.upsample_rates.begin(), config.upsample_rates.end(), std::int64_t{1}, std::multiplies<>()),
          .sampling_rate = config.sampling_rate};
}

/// A convolution that keeps the length where its kernel size is odd.
[[nodiscard]] inline Conv1d same_length(std::int64_t channels, std::int64_t kernel_size, std::int64_t dilation) {
  return Conv1d({.in_channels = channels,
                 .out_channels = channels,
                 .kernel_size = kernel_size,
                 .padding = (kernel_size * dilation - dilation) / 2,
                 .dilation = dilation});
}

/// conv_pre and the stages: a transposed convolution each, named "ups.STAGE" and `suffix`, after the layers that `add_before`
/// appends, and the mean of its residual blocks, `block(channels, kernel_size, dilations)`. Returns the channels after the last
/// stage.
template <class AddBefore, class Block>
std::int64_t add_stages(Sequential& net, const GeneratorConfig& config, const char* suffix, const AddBefore& add_before,
                        const Block& block) {
  std::int64_t channels = config.upsample_initial_channel;
  net.push_back(
      named("conv_pre", Conv1d({.in_channels = config.num_mels, .out_channels = channels, .kernel_size = 7, .padding = 3})));
  std::size_t index = 0;
  for (std::size_t stage = 0; stage < config.upsample_rates.size(); ++stage) {
    const std::int64_t kernel_size = config.upsample_kernel_sizes[stage], rate = config.upsample_rates[stage];
    add_before(net);
    net.push_back(named(concat("ups.", stage, suffix), ConvTranspose1d({.in_channels = channels,
                                                                        .out_channels = channels / 2,
                                                                        .kernel_size = kernel_size,
                                                                        .stride = rate,
                                                                        .padding = (kernel_size - rate) / 2})));
    channels /= 2;
    MeanOfBranches mean;
    for (std::size_t i = 0; i < config.resblock_kernel_sizes.size(); ++i)
      mean.push_back(named(concat("resblocks.", index++),
                           block(channels, config.resblock_kernel_sizes[i], config.resblock_dilation_sizes[i])));
    net.push_back(named("", std::move(mean)));
  }
  return channels;
}

}  // namespace polyphase::networks
