#include "networks/gan/kernel_convs.hpp"

#include <vector>

#include "ops/conv.hpp"
#include "ops/length.hpp"

namespace polyphase::networks {

ColumnConv::ColumnConv(const Options& options) : options_(options) {
  initialise({options.out_channels, options.in_channels, options.kernel_size, 1}, options.out_channels, {});
}

Tensor ColumnConv::forward_activated(const Tensor& x, const ConvOutputOptions& output) const {
  return conv1d(x, weight().squeeze(3), bias(), {.stride = options_.stride, .padding = options_.padding}, output);
}

BinConv::BinConv(const Options& options) : options_(options) {
  initialise({options.out_channels, options.in_channels, options.bins, options.kernel_size}, options.out_channels, {});
}

// The bins under the kernel become channels of one row: a single convolution adds them up.
Tensor BinConv::forward_activated(const Tensor& x, const ConvOutputOptions& output) const {
  const auto& [in, out, bins, kernel_size, stride] = options_;
  const std::int64_t count = x.size(1);
  const Tensor edge = Tensor::zeros({x.size(0), bins / 2, in, x.size(3)}, {.dtype = x.dtype(), .device = x.device()});
  const Tensor padded = cat({edge, x, edge}, 1);
  std::vector<Tensor> neighbours;
  for (std::int64_t bin = 0; bin < bins; ++bin) neighbours.push_back(padded.narrow(1, bin, count));
  const Tensor rows = cat(neighbours, 2).reshape({x.size(0) * count, bins * in, x.size(3)});
  const Tensor kernel = weight().permute({0, 2, 1, 3}).reshape({out, bins * in, kernel_size});
  const Tensor y = conv1d(rows, kernel, bias(), {.stride = stride, .padding = kernel_size / 2}, output);
  return y.reshape({x.size(0), count, out, y.size(2)});
}

}  // namespace polyphase::networks
