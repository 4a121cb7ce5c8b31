#include "layers/streaming/conv_stream.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "support/stream.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Conv1d conv(std::int64_t kernel_size, std::int64_t stride, Padding padding, std::int64_t dilation = 1, std::int64_t groups = 1,
            PaddingMode mode = PaddingMode::zeros) {
  return Conv1d({.in_channels = 6,
                 .out_channels = 4,
                 .kernel_size = kernel_size,
                 .stride = stride,
                 .padding = padding,
                 .dilation = dilation,
                 .groups = groups,
                 .padding_mode = mode});
}

}  // namespace

TEST_CASE("convolutions in pieces: every parameter") {
  manual_seed(3);
  for (const std::int64_t stride : {1, 2, 5}) {
    for (const std::int64_t kernel_size : {1, 3, 7}) {
      for (const std::int64_t dilation : {1, 3}) {
        for (const std::int64_t groups : {1, 2}) {
          for (const Padding padding : {Padding(0), Padding(3), Padding(6, 0), Padding(0, 2), Padding(1, 4)}) {
            CAPTURE(stride);
            CAPTURE(kernel_size);
            CAPTURE(dilation);
            CAPTURE(padding.left);
            CAPTURE(padding.right);
            Conv1d layer = conv(kernel_size, stride, padding, dilation, groups);
            check_stream(layer, {2, 6, 45});
          }
        }
      }
    }
  }
}

TEST_CASE("transposed convolutions in pieces: every parameter") {
  manual_seed(4);
  for (const std::int64_t stride : {1, 2, 5, 8}) {
    for (const std::int64_t kernel_size : {1, 4, 10, 16}) {
      for (const std::int64_t dilation : {1, 3}) {
        for (const std::int64_t groups : {1, 2}) {
          for (const Padding padding : {Padding(0), Padding(1), Padding(3, 0), Padding(0, 5)}) {
            for (const std::int64_t output_padding : {0, 1}) {
              if (output_padding >= std::max(stride, dilation)) continue;
              CAPTURE(stride);
              CAPTURE(kernel_size);
              CAPTURE(dilation);
              CAPTURE(groups);
              CAPTURE(padding.left);
              CAPTURE(padding.right);
              CAPTURE(output_padding);
              ConvTranspose1d layer({.in_channels = 6,
                                     .out_channels = 4,
                                     .kernel_size = kernel_size,
                                     .stride = stride,
                                     .padding = padding,
                                     .output_padding = output_padding,
                                     .groups = groups,
                                     .dilation = dilation});
              check_stream(layer, {2, 6, 45});
            }
          }
        }
      }
    }
  }
}

TEST_CASE("padding that repeats or mirrors the row's ends") {
  manual_seed(5);
  for (const PaddingMode mode : {PaddingMode::reflect, PaddingMode::replicate}) {
    for (const Padding padding : {Padding(3), Padding(6, 0), Padding(0, 6), Padding(1, 4)}) {
      for (const std::int64_t stride : {1, 3}) {
        Conv1d layer = conv(7, stride, padding, 1, 1, mode);
        check_stream(layer, {1, 6, 45});
        check_stream(layer, {1, 6, 7});
      }
    }
  }
}

TEST_CASE("a stride longer than the window, and Padding::same()") {
  manual_seed(6);
  Conv1d sparse = conv(2, 7, 0);
  check_stream(sparse, {1, 6, 45});
  Conv1d same = conv(4, 1, Padding::same(), 3);
  check_stream(same, {1, 6, 45});
}

TEST_CASE("depthwise convolutions") {
  manual_seed(7);
  Conv1d depthwise({.in_channels = 6, .out_channels = 6, .kernel_size = 7, .padding = 9, .dilation = 3, .groups = 6});
  check_stream(depthwise, {2, 6, 100});
  ConvTranspose1d up({.in_channels = 6, .out_channels = 6, .kernel_size = 12, .stride = 2, .padding = 5, .groups = 6});
  check_stream(up, {2, 6, 100});
}
