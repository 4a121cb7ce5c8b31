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

// The bins of a channel lie one behind another in a long row, with zeros between them. The rows of the bins under the kernel
// are the same row shifted, as further channels: a single convolution adds them up.
Tensor BinConv::forward_activated(const Tensor& x, const ConvOutputOptions& output) const {
  const auto& [in, out, bins, kernel_size, stride] = options_;
  const std::int64_t N = x.size(0), count = x.size(2), frames = x.size(3), margin = kernel_size / 2;
  const std::int64_t pitch = (frames + kernel_size - 1 + stride - 1) / stride * stride;  // from bin to bin
  const Tensor row = pad1d(x, {margin, pitch - frames - margin}).reshape({N, in, count * pitch});
  const Tensor padded = pad1d(row, {bins / 2 * pitch, bins / 2 * pitch + kernel_size - 1});
  std::vector<Tensor> shifted;
  for (std::int64_t bin = 0; bin < bins; ++bin)
    shifted.push_back(padded.narrow(2, bin * pitch, count * pitch + kernel_size - 1));
  const Tensor kernel = weight().permute({0, 2, 1, 3}).reshape({out, bins * in, kernel_size});
  const Tensor y = conv1d(cat(shifted, 1), kernel, bias(), {.stride = stride}, output);
  return y.reshape({N, out, count, pitch / stride}).narrow(3, 0, (frames - 1) / stride + 1);
}

}  // namespace polyphase::networks
