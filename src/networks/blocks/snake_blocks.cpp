#include "networks/blocks/snake_blocks.hpp"

#include <algorithm>

#include "layers/activations.hpp"

namespace polyphase {

std::int64_t product_of_rates(const std::vector<std::int64_t>& rates) {
  constexpr std::int64_t kMore = kLargestFrame + 1;
  std::int64_t all = 1;
  for (const std::int64_t rate : rates) all = std::min(all * std::min(rate, kMore), kMore);
  return all;
}

bool is_of_encoder(std::string_view key) { return key.starts_with("encoder.") || key.find(".in_proj.") != key.npos; }

std::shared_ptr<Module> make_snake(std::int64_t channels) { return std::make_shared<Snake>(channels); }

void append_residual_units(Sequential& block, const ResidualUnits& units) {
  for (const std::int64_t dilation : {1, 3, 9}) {
    Sequential unit;
    unit.push_back(units.activation(units.channels));
    unit.push_back(Conv1d({.in_channels = units.channels,
                           .out_channels = units.channels,
                           .kernel_size = 7,
                           .padding = 3 * dilation,
                           .dilation = dilation,
                           .groups = units.groups}));
    unit.push_back(units.activation(units.channels));
    unit.push_back(same_conv(units.channels, units.channels, 1));
    block.push_back(Residual({.name = units.name}, std::move(unit)));
  }
}

Conv1d same_conv(std::int64_t in, std::int64_t out, std::int64_t kernel_size, std::int64_t groups, bool bias) {
  return Conv1d({.in_channels = in,
                 .out_channels = out,
                 .kernel_size = kernel_size,
                 .padding = (kernel_size - 1) / 2,
                 .groups = groups,
                 .bias = bias});
}

ConvTranspose1d upsampling(std::int64_t in, std::int64_t out, std::int64_t rate, bool keeps_length) {
  return ConvTranspose1d({.in_channels = in,
                          .out_channels = out,
                          .kernel_size = 2 * rate,
                          .stride = rate,
                          .padding = (rate + 1) / 2,
                          .output_padding = keeps_length ? rate % 2 : 0});
}

Conv1d downsampling(std::int64_t in, std::int64_t out, std::int64_t rate) {
  return Conv1d({.in_channels = in, .out_channels = out, .kernel_size = 2 * rate, .stride = rate, .padding = (rate + 1) / 2});
}

}  // namespace polyphase
