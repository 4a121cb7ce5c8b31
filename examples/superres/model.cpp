#include "model.hpp"

#include <algorithm>
#include <charconv>

#include "autograd/no_grad.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"
#include "shared.hpp"

namespace superres {
namespace {

constexpr double kSlope = 0.1;            // of the leaky ReLUs
constexpr std::int64_t kEndKernel = 7;    // of the first and last convolution
constexpr std::int64_t kStageKernel = 8;  // of the ConvTranspose1d stages: four taps per phase
constexpr std::int64_t kStageStride = 2;
constexpr std::int64_t kHighKernel = 11;  // of the block at the output's rate
constexpr std::int64_t kCausalTaps = 16;  // low-rate samples that the causal interpolation uses

pp::Tensor activate(const pp::Tensor& x) { return pp::leaky_relu(x, kSlope); }

// A convolution that keeps the length, centred or causal.
pp::Conv1d same_conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t dilation, bool causal) {
  const std::int64_t reach = (kernel - 1) * dilation;
  return pp::Conv1d({.in_channels = in,
                     .out_channels = out,
                     .kernel_size = kernel,
                     .padding = causal ? pp::Padding(reach, 0) : pp::Padding(reach / 2, reach / 2),
                     .dilation = dilation});
}

Context context_of(const pp::Conv1d& conv) {
  const std::int64_t reach = (conv.options().kernel_size - 1) * conv.options().dilation;
  return {conv.options().padding.left, reach - conv.options().padding.left};
}

Context operator+(const Context& a, const Context& b) { return {a.left + b.left, a.right + b.right}; }

// Output t depends on input i if t + P_l - k = S*i for a tap k: converts a context at the output's rate to the input's rate.
Context through(const pp::ConvTranspose1d& stage, const Context& high) {
  const auto& options = stage.options();
  const std::int64_t left = high.left + options.kernel_size - 1 - options.padding.left;
  const std::int64_t right = high.right + options.padding.left;
  return {(left + options.stride - 1) / options.stride, (right + options.stride - 1) / options.stride};
}

// Doubles the rate: L_out = 2*L_in; centred, or without taps from the future.
pp::ConvTranspose1d make_stage(std::int64_t in, std::int64_t out, bool causal) {
  constexpr std::int64_t kSpare = kStageKernel - kStageStride;
  return pp::ConvTranspose1d({.in_channels = in,
                              .out_channels = out,
                              .kernel_size = kStageKernel,
                              .stride = kStageStride,
                              .padding = causal ? pp::Padding(0, kSpare) : pp::Padding(kSpare / 2, kSpare / 2)});
}

// Taps of the interpolation.
std::int64_t base_kernel(const ModelOptions& options) {
  return options.causal ? kCausalTaps * options.factor : 2 * kInterpolation.zero_crossings * options.factor + 1;
}

// Windowed sinc; causal: repeats the last sample at first, and the training improves it.
pp::ConvTranspose1d make_base(const ModelOptions& options) {
  const std::int64_t factor = options.factor;
  const pp::NoGradGuard no_grad;
  if (options.causal) {
    const std::int64_t kernel = base_kernel(options);
    pp::ConvTranspose1d base({.in_channels = 1,
                              .out_channels = 1,
                              .kernel_size = kernel,
                              .stride = factor,
                              .padding = pp::Padding(0, kernel - factor),
                              .bias = false});
    std::vector<float> hold(static_cast<std::size_t>(kernel), 0.0F);
    std::fill_n(hold.begin(), factor, 1.0F);
    base.weight().copy_(pp::Tensor::from_vector(hold, {1, 1, kernel}));
    return base;
  }
  const std::vector<double> sinc = lowpass_kernel(factor, 1, kInterpolation);
  const auto kernel = static_cast<std::int64_t>(sinc.size());
  pp::ConvTranspose1d base({.in_channels = 1,
                            .out_channels = 1,
                            .kernel_size = kernel,
                            .stride = factor,
                            .padding = kernel / 2,
                            .output_padding = factor - 1,
                            .bias = false});
  base.weight().copy_(pp::Tensor::from_vector(sinc, {1, 1, kernel}));
  base.set_requires_grad(false);
  return base;
}

std::vector<ResidualBlock> make_blocks(const ModelOptions& options) {
  std::vector<ResidualBlock> blocks;
  std::int64_t dilation = 1;
  for (int i = 0; i < options.blocks; ++i, dilation *= 3) {
    blocks.emplace_back(options.channels, options.kernel, dilation, options.causal);
  }
  return blocks;
}

// Channels before and after each stage: halved from stage to stage, down to high_channels after the last one.
std::vector<std::pair<std::int64_t, std::int64_t>> stage_channels(const ModelOptions& options) {
  std::vector<std::pair<std::int64_t, std::int64_t>> stages;
  std::int64_t channels = options.channels;
  for (int factor = options.factor; factor > 1; factor /= 2) {
    const std::int64_t next = factor == 2 ? options.high_channels : std::max<std::int64_t>(options.high_channels, channels / 2);
    stages.emplace_back(channels, next);
    channels = next;
  }
  return stages;
}

std::vector<pp::ConvTranspose1d> make_stages(const ModelOptions& options) {
  std::vector<pp::ConvTranspose1d> stages;
  for (const auto& [in, out] : stage_channels(options)) stages.push_back(make_stage(in, out, options.causal));
  return stages;
}

const ModelOptions& validated(const ModelOptions& options) {
  validate(options);
  return options;
}

void require_range(const char* name, int value, int low, int high) {
  pp::require<pp::Error>(value >= low && value <= high, "model: expected ", name, " in ", low, "..", high, ", got ", value);
}

}  // namespace

void validate(const ModelOptions& options) {
  pp::require<pp::Error>(options.factor == 2 || options.factor == 4 || options.factor == 8,
                         "model: expected a factor of 2, 4 or 8, got ", options.factor);
  pp::require<pp::Error>(options.rate > 0 && options.rate % options.factor == 0, "model: expected a rate that ", options.factor,
                         " divides, got ", options.rate, " Hz");
  require_range("channels", options.channels, 1, 4096);
  require_range("high_channels", options.high_channels, 1, 4096);
  require_range("blocks", options.blocks, 0, 10);
  require_range("kernel", options.kernel, 1, 99);
  pp::require<pp::Error>(options.kernel % 2 == 1, "model: expected an odd kernel, got ", options.kernel);
}

std::map<std::string, std::string> to_texts(const ModelOptions& options) {
  return {{"factor", std::to_string(options.factor)}, {"rate", std::to_string(options.rate)},
          {"causal", options.causal ? "1" : "0"},     {"channels", std::to_string(options.channels)},
          {"blocks", std::to_string(options.blocks)}, {"high_channels", std::to_string(options.high_channels)},
          {"kernel", std::to_string(options.kernel)}};
}

ModelOptions from_texts(const std::map<std::string, std::string>& texts) {
  const auto number = [&](const char* name) {
    const auto entry = texts.find(name);
    pp::require<pp::Error>(entry != texts.end(), "model: the checkpoint does not say '", name, "': not one of this program's");
    int value = 0;
    const std::string& text = entry->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    pp::require<pp::Error>(error == std::errc() && end == text.data() + text.size(), "model: expected a whole number for '",
                           name, "', got '", text, "'");
    return value;
  };
  ModelOptions options{.factor = number("factor"),
                       .rate = number("rate"),
                       .causal = number("causal") != 0,
                       .channels = number("channels"),
                       .high_channels = number("high_channels"),
                       .blocks = number("blocks"),
                       .kernel = number("kernel")};
  validate(options);
  return options;
}

std::vector<std::pair<std::string, pp::Shape>> state_shapes(const ModelOptions& options) {
  std::vector<std::pair<std::string, pp::Shape>> shapes{{"base.weight", {1, 1, base_kernel(options)}}};
  const auto layer = [&](const std::string& name, const pp::Shape& weight, std::int64_t bias) {
    shapes.emplace_back(name + ".weight", weight);
    shapes.emplace_back(name + ".bias", pp::Shape{bias});
  };
  const auto block = [&](const std::string& name, std::int64_t channels, std::int64_t kernel) {
    layer(name + ".dilated", {channels, channels, kernel}, channels);
    layer(name + ".plain", {channels, channels, kernel}, channels);
  };
  layer("first", {options.channels, 1, kEndKernel}, options.channels);
  for (int i = 0; i < options.blocks; ++i) block("blocks." + std::to_string(i), options.channels, options.kernel);
  const auto stages = stage_channels(options);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const auto [in, out] = stages[i];
    layer("stages." + std::to_string(i), {in, out, kStageKernel}, out);
  }
  block("last_block", options.high_channels, kHighKernel);
  layer("last", {1, options.high_channels, kEndKernel}, 1);
  return shapes;
}

ModelOptions options_of(const pp::Checkpoint& checkpoint) {
  const ModelOptions options = from_texts(checkpoint.texts);
  for (const auto& [name, shape] : state_shapes(options)) {
    const auto has_name = [&, &name = name](const auto& entry) { return entry.first == name; };
    const auto found = std::find_if(checkpoint.model.begin(), checkpoint.model.end(), has_name);
    const bool is_there = found != checkpoint.model.end();
    pp::require<pp::Error>(is_there && found->second.shape() == shape, "model: expected a tensor '", name, "' of shape ", shape,
                           ", as the checkpoint's texts say, got ",
                           is_there ? pp::concat(found->second.shape()) : std::string("none"));
  }
  return options;
}

ResidualBlock::ResidualBlock(std::int64_t channels, std::int64_t kernel, std::int64_t dilation, bool causal)
    : dilated_(same_conv(channels, channels, kernel, dilation, causal)),
      plain_(same_conv(channels, channels, kernel, 1, causal)) {}

void ResidualBlock::visit(pp::Visitor& visitor) {
  visitor.module("dilated", dilated_);
  visitor.module("plain", plain_);
}

pp::Tensor ResidualBlock::forward(const pp::Tensor& x) { return x + plain_(activate(dilated_(x))); }

Context ResidualBlock::context() const { return context_of(dilated_) + context_of(plain_); }

UpsamplingNetwork::UpsamplingNetwork(const ModelOptions& options)
    : options_(validated(options)),
      base_(make_base(options)),
      first_(same_conv(1, options.channels, kEndKernel, 1, options.causal)),
      blocks_(make_blocks(options)),
      stages_(make_stages(options)),
      last_block_(options.high_channels, kHighKernel, 1, options.causal),
      last_(same_conv(options.high_channels, 1, kEndKernel, 1, options.causal)) {
  // At the start the network is almost the interpolation.
  const pp::NoGradGuard no_grad;
  last_.weight().copy_(last_.weight() * 0.1);
  last_.bias().zero_();
}

void UpsamplingNetwork::visit(pp::Visitor& visitor) {
  visitor.module("base", base_);
  visitor.module("first", first_);
  for (std::size_t i = 0; i < blocks_.size(); ++i) visitor.module("blocks." + std::to_string(i), blocks_[i]);
  for (std::size_t i = 0; i < stages_.size(); ++i) visitor.module("stages." + std::to_string(i), stages_[i]);
  visitor.module("last_block", last_block_);
  visitor.module("last", last_);
}

pp::Tensor UpsamplingNetwork::forward(const pp::Tensor& low) {
  pp::Tensor x = first_(low);
  for (ResidualBlock& block : blocks_) x = block(x);
  for (pp::ConvTranspose1d& stage : stages_) x = stage(activate(x));
  return base_(low) + last_(activate(last_block_(x)));
}

Context UpsamplingNetwork::context() const {
  Context network = context_of(last_) + last_block_.context();
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) network = through(*stage, network);
  for (const ResidualBlock& block : blocks_) network = network + block.context();
  network = network + context_of(first_);
  const Context base = through(base_, {0, 0});
  return {std::max(network.left, base.left), std::max(network.right, base.right)};
}

}  // namespace superres
