#include "networks/encodec_seanet.hpp"

#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sum_of_branches.hpp"
#include "layers/lstm.hpp"
#include "networks/blocks/encodec_layers.hpp"

namespace polyphase::networks {
namespace {

constexpr std::int64_t kMostChannels = std::int64_t{1} << 31;

EncodecConv1d conv(const EncodecConfig& config, std::int64_t in, std::int64_t out, std::int64_t kernel_size,
                   std::int64_t stride = 1, std::int64_t dilation = 1) {
  return EncodecConv1d({.in_channels = in,
                        .out_channels = out,
                        .kernel_size = kernel_size,
                        .stride = stride,
                        .dilation = dilation,
                        .causal = config.causal,
                        .norm = config.time_group_norm});
}

// SEANetResnetBlock.
std::shared_ptr<Module> residual_unit(const EncodecConfig& config, std::int64_t channels, std::int64_t dilation) {
  const std::int64_t hidden = channels / config.compress;
  Sequential block(ELU(), conv(config, channels, hidden, config.residual_kernel_size, 1, dilation), ELU(),
                   conv(config, hidden, channels, 1));
  if (config.true_skip) return std::make_shared<Residual>(std::move(block));
  return std::make_shared<SumOfBranches>(named("shortcut", conv(config, channels, channels, 1)),
                                         named("block", std::move(block)));
}

void add_residual_units(Sequential& net, const EncodecConfig& config, std::int64_t channels) {
  std::int64_t dilation = 1;
  for (std::int64_t i = 0; i < config.n_residual_layers; ++i, dilation *= config.dilation_base)
    net.push_back(residual_unit(config, channels, dilation));
}

// SLSTM.
void add_lstm(Sequential& net, const EncodecConfig& config, std::int64_t channels) {
  if (config.lstm == 0) return;
  net.push_back(Residual(
      {.name = ""},
      named("",
            ChannelsLast(named("lstm", LSTM({.input_size = channels, .hidden_size = channels, .num_layers = config.lstm}))))));
}

}  // namespace

void check_encodec(const EncodecConfig& config) {
  const auto expect = [](bool condition, const auto&... what) {
    require<FormatError>(condition, "encodec: config: ", what...);
  };
  expect(!config.ratios.empty() && config.ratios.size() < 31, "expected from 1 to 30 seanet.ratios, got ",
         config.ratios.size());
  expect(config.n_filters << config.ratios.size() <= kMostChannels, "expected fewer channels than 2^31, got seanet.n_filters ",
         config.n_filters, " with ", config.ratios.size(), " ratios");
  expect(config.compress <= config.n_filters, "expected seanet.compress of at most n_filters=", config.n_filters, ", got ",
         config.compress);
  expect(!config.causal || !config.time_group_norm,
         "expected causal false with model_norm time_group_norm, whose statistics are of the whole length");
  expect(!config.segment || (*config.segment > 0 && config.segment_length() >= 1),
         "expected a segment of at least one sample, got ", config.segment.value_or(0));
  expect(config.overlap >= 0 && config.overlap < 1, "expected an overlap from 0 on, below 1, got ", config.overlap);
}

Sequential seanet_encoder(const EncodecConfig& config) {
  std::int64_t channels = config.n_filters;
  Sequential net(conv(config, config.channels, channels, config.kernel_size));
  for (auto ratio = config.ratios.rbegin(); ratio != config.ratios.rend(); ++ratio) {
    add_residual_units(net, config, channels);
    net.push_back(ELU());
    net.push_back(conv(config, channels, 2 * channels, 2 * *ratio, *ratio));
    channels *= 2;
  }
  add_lstm(net, config, channels);
  net.push_back(ELU());
  net.push_back(conv(config, channels, config.dimension, config.last_kernel_size));
  return net;
}

Sequential seanet_decoder(const EncodecConfig& config) {
  std::int64_t channels = config.n_filters << config.ratios.size();
  Sequential net(conv(config, config.dimension, channels, config.kernel_size));
  add_lstm(net, config, channels);
  for (const std::int64_t ratio : config.ratios) {
    net.push_back(ELU());
    net.push_back(EncodecConvTranspose1d({.in_channels = channels,
                                          .out_channels = channels / 2,
                                          .kernel_size = 2 * ratio,
                                          .stride = ratio,
                                          .causal = config.causal,
                                          .norm = config.time_group_norm}));
    channels /= 2;
    add_residual_units(net, config, channels);
  }
  net.push_back(ELU());
  net.push_back(conv(config, channels, config.channels, config.last_kernel_size));
  return net;
}

bool is_unused_by_quantizer(std::string_view key) {
  return key.starts_with("quantizer.") &&
         (key.ends_with(".inited") || key.ends_with(".cluster_size") || key.ends_with(".embed_avg"));
}

}  // namespace polyphase::networks
