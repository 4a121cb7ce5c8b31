#include "golden/hifigan.hpp"

#include <string>

#include <nlohmann/json.hpp>

#include "io/json_reason.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"

namespace polyphase::golden {
namespace {

using Json = nlohmann::json;

constexpr double kSlope = 0.1;       // everywhere but before the last layer,
constexpr double kLastSlope = 0.01;  // where the reference leaves PyTorch's default

Conv1d same_length(std::int64_t channels, std::int64_t kernel_size, std::int64_t dilation) {
  return Conv1d({.in_channels = channels,
                 .out_channels = channels,
                 .kernel_size = kernel_size,
                 .padding = (kernel_size * dilation - dilation) / 2,
                 .dilation = dilation});
}

Conv1d end_layer(std::int64_t in_channels, std::int64_t out_channels) {
  return Conv1d({.in_channels = in_channels, .out_channels = out_channels, .kernel_size = 7, .padding = 3});
}

void require_config(bool condition, const std::string& what) { require<FormatError>(condition, "hifigan: config: ", what); }

}  // namespace

HifiganConfig parse_hifigan_config(const std::string& text) {
  HifiganConfig config;
  try {
    const Json json = Json::parse(text);
    const Json& block = json.at("resblock");
    const std::string kind = block.is_string() ? block.get<std::string>() : block.dump();
    require_config(kind == "1" || kind == "2", "expected resblock 1 or 2, got " + kind);
    config.two_convolutions = kind == "1";
    json.at("upsample_rates").get_to(config.upsample_rates);
    json.at("upsample_kernel_sizes").get_to(config.upsample_kernel_sizes);
    json.at("upsample_initial_channel").get_to(config.upsample_initial_channel);
    json.at("resblock_kernel_sizes").get_to(config.resblock_kernel_sizes);
    json.at("resblock_dilation_sizes").get_to(config.resblock_dilation_sizes);
    config.num_mels = json.value("num_mels", config.num_mels);
  } catch (const Json::exception& error) {
    throw FormatError(concat("hifigan: config: ", json_reason(error)));
  }
  require_config(config.upsample_rates.size() == config.upsample_kernel_sizes.size() && !config.upsample_rates.empty(),
                 "expected as many upsample_kernel_sizes as upsample_rates");
  require_config(
      config.resblock_kernel_sizes.size() == config.resblock_dilation_sizes.size() && !config.resblock_kernel_sizes.empty(),
      "expected as many resblock_dilation_sizes as resblock_kernel_sizes");
  return config;
}

HifiganResblock::HifiganResblock(std::int64_t channels, std::int64_t kernel_size, const std::vector<std::int64_t>& dilations,
                                 bool two_convolutions) {
  for (const std::int64_t dilation : dilations) {
    first_.push_back(same_length(channels, kernel_size, dilation));
    if (two_convolutions) second_.push_back(same_length(channels, kernel_size, 1));
  }
}

void HifiganResblock::visit(Visitor& visitor) {
  visitor.module(second_.size() == 0 ? "convs" : "convs1", first_);
  visitor.module("convs2", second_);
}

Tensor HifiganResblock::forward(const Tensor& x) {
  Tensor result = x;
  for (std::size_t i = 0; i < first_.size(); ++i) {
    Tensor branch = first_[i](leaky_relu(result, kSlope));
    if (second_.size() > 0) branch = second_[i](leaky_relu(branch, kSlope));
    result = result + branch;
  }
  return result;
}

HifiganGenerator::HifiganGenerator(const HifiganConfig& config)
    : before_(end_layer(config.num_mels, config.upsample_initial_channel)) {
  std::int64_t channels = config.upsample_initial_channel;
  for (std::size_t stage = 0; stage < config.upsample_rates.size(); ++stage) {
    const std::int64_t kernel_size = config.upsample_kernel_sizes[stage];
    const std::int64_t rate = config.upsample_rates[stage];
    ups_.push_back(ConvTranspose1d({.in_channels = channels,
                                    .out_channels = channels / 2,
                                    .kernel_size = kernel_size,
                                    .stride = rate,
                                    .padding = (kernel_size - rate) / 2}));
    channels /= 2;
    for (std::size_t i = 0; i < config.resblock_kernel_sizes.size(); ++i) {
      blocks_.push_back(HifiganResblock(channels, config.resblock_kernel_sizes[i], config.resblock_dilation_sizes[i],
                                        config.two_convolutions));
    }
  }
  after_ = std::make_unique<Conv1d>(end_layer(channels, 1));
}

void HifiganGenerator::visit(Visitor& visitor) {
  visitor.module("conv_pre", before_);
  visitor.module("ups", ups_);
  visitor.module("resblocks", blocks_);
  visitor.module("conv_post", *after_);
}

Tensor HifiganGenerator::forward(const Tensor& mel) {
  const std::size_t per_stage = blocks_.size() / ups_.size();
  Tensor x = before_(mel);
  for (std::size_t stage = 0; stage < ups_.size(); ++stage) {
    x = ups_[stage](leaky_relu(x, kSlope));
    Tensor sum = blocks_[stage * per_stage](x);
    for (std::size_t i = 1; i < per_stage; ++i) sum = sum + blocks_[stage * per_stage + i](x);
    x = sum / static_cast<double>(per_stage);
  }
  return tanh((*after_)(leaky_relu(x, kLastSlope)));
}

}  // namespace polyphase::golden
