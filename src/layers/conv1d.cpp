#include "layers/conv1d.hpp"

#include <algorithm>

#include "layers/check.hpp"
#include "layers/streaming/conv_stream.hpp"

namespace polyphase {

Conv1d::Conv1d(const Options& options) : options_(options) {
  static constexpr const char* kName = "Conv1d";
  layers::require_at_least(kName, "in_channels", options.in_channels, 1);
  layers::require_at_least(kName, "out_channels", options.out_channels, 1);
  layers::require_at_least(kName, "kernel_size", options.kernel_size, 1);
  layers::require_at_least(kName, "stride", options.stride, 1);
  layers::require_at_least(kName, "dilation", options.dilation, 1);
  layers::require_at_least(kName, "groups", options.groups, 1);
  layers::require_at_least(kName, "padding", std::min(options.padding.left, options.padding.right), 0);
  require<ShapeError>(!options.padding.is_same || options.stride == 1, kName, ": padding same needs stride 1, got ",
                      options.stride);
  layers::require_divisible(kName, "in_channels", options.in_channels, "groups", options.groups);
  layers::require_divisible(kName, "out_channels", options.out_channels, "groups", options.groups);
  layers::require_floating(kName, options.dtype);
  initialise({options.out_channels, options.in_channels / options.groups, options.kernel_size},
             options.bias ? options.out_channels : 0, {.dtype = options.dtype, .device = options.device});
}

Conv1dOptions Conv1d::function_options() const {
  return {.stride = options_.stride,
          .padding = options_.padding,
          .dilation = options_.dilation,
          .groups = options_.groups,
          .padding_mode = options_.padding_mode};
}

Tensor Conv1d::forward(const Tensor& x) { return conv1d(x, weight(), bias(), function_options()); }

std::unique_ptr<ModuleStream> Conv1d::make_stream() { return std::make_unique<layers::Conv1dStream>(*this); }

Tensor Conv1d::forward_activated(const Tensor& x, const ConvOutputOptions& output, const ConvInputOptions& input) const {
  return conv1d(x, weight(), bias(), function_options(), output, input);
}

}  // namespace polyphase
