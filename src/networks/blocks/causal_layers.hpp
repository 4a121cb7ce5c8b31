#pragma once
// Convolutions that look back only, as causal decoders have them. Internal.

#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"

namespace polyphase {

/// Stride 1. All padding is in front, so that the length stays and output t depends on inputs up to t.
[[nodiscard]] inline Conv1d causal_conv(Conv1d::Options options) {
  options.padding = {(options.kernel_size - 1) * options.dilation, 0};
  return Conv1d(options);
}

/// L -> L*stride: the K - S outputs that inputs to come would add to are cut off at the end.
[[nodiscard]] inline ConvTranspose1d causal_up(ConvTranspose1d::Options options) {
  options.padding = {0, options.kernel_size - options.stride};
  return ConvTranspose1d(options);
}

}  // namespace polyphase
