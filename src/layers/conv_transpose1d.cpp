#include "layers/conv_transpose1d.hpp"

#include <algorithm>

#include "layers/check.hpp"
#include "layers/streaming/conv_stream.hpp"

namespace polyphase {

ConvTranspose1d::ConvTranspose1d(const Options& options) : options_(options) {
  static constexpr const char* kName = "ConvTranspose1d";
  layers::require_at_least(kName, "in_channels", options.in_channels, 1);
  layers::require_at_least(kName, "out_channels", options.out_channels, 1);
  layers::require_at_least(kName, "kernel_size", options.kernel_size, 1);
  layers::require_at_least(kName, "stride", options.stride, 1);
  layers::require_at_least(kName, "dilation", options.dilation, 1);
  layers::require_at_least(kName, "groups", options.groups, 1);
  require<ShapeError>(!options.padding.is_same, kName, ": padding same is for Conv1d; give a number");
  layers::require_at_least(kName, "padding", std::min(options.padding.left, options.padding.right), 0);
  layers::require_at_least(kName, "output_padding", options.output_padding, 0);
  const std::int64_t limit = std::max(options.stride, options.dilation);
  require<ShapeError>(options.output_padding < limit, kName, ": expected output_padding < max(stride, dilation) = ", limit,
                      ", got ", options.output_padding);
  layers::require_divisible(kName, "in_channels", options.in_channels, "groups", options.groups);
  layers::require_divisible(kName, "out_channels", options.out_channels, "groups", options.groups);
  layers::require_floating(kName, options.dtype);
  initialise({options.in_channels, options.out_channels / options.groups, options.kernel_size},
             options.bias ? options.out_channels : 0, {.dtype = options.dtype, .device = options.device});
}

ConvTranspose1dOptions ConvTranspose1d::function_options(std::optional<std::int64_t> output_size) const {
  return {.stride = options_.stride,
          .padding = options_.padding,
          .output_padding = options_.output_padding,
          .dilation = options_.dilation,
          .groups = options_.groups,
          .output_size = output_size};
}

Tensor ConvTranspose1d::forward(const Tensor& x) { return conv_transpose1d(x, weight(), bias(), function_options({})); }
Tensor ConvTranspose1d::operator()(const Tensor& x, std::int64_t output_size) {
  return conv_transpose1d(x, weight(), bias(), function_options(output_size));
}

std::unique_ptr<ModuleStream> ConvTranspose1d::make_stream() { return std::make_unique<layers::ConvTranspose1dStream>(*this); }

Tensor ConvTranspose1d::forward_activated(const Tensor& x, const ConvOutputOptions& output,
                                          const ConvInputOptions& input) const {
  return conv_transpose1d(x, weight(), bias(), function_options({}), output, input);
}

}  // namespace polyphase
