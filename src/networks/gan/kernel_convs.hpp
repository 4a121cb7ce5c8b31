#pragma once
// The discriminators' two-dimensional convolutions, computed by Conv1d. Internal.

#include <cstdint>

#include "layers/weight.hpp"
#include "ops/conv_output.hpp"

namespace polyphase::networks {

/// Conv2d with a kernel (K, 1), each column a row of the input: (rows, C_in, L) -> (rows, C_out, L_out), L_out as Conv1d's.
/// Parameters: weight (C_out, C_in, K, 1), bias (C_out).
class ColumnConv : public WeightedLayer {
 public:
  struct Options {
    std::int64_t in_channels = 0;
    std::int64_t out_channels = 0;
    std::int64_t kernel_size = 0;
    std::int64_t stride = 1;
    std::int64_t padding = 0;
  };
  explicit ColumnConv(const Options& options);
  [[nodiscard]] Tensor forward(const Tensor& x) override { return forward_activated(x, {}); }
  [[nodiscard]] Tensor forward_activated(const Tensor& x, const ConvOutputOptions& output) const;

 private:
  Options options_;
};

/// Conv2d with a kernel (bins, K), both odd, a stride along the frames, and zeros around that keep the number of bins and, at
/// stride 1, of frames: (N, C_in, bins, frames) -> (N, C_out, bins, frames/stride rounded up). Parameters: weight (C_out, C_in,
/// bins, K), bias (C_out).
class BinConv : public WeightedLayer {
 public:
  struct Options {
    std::int64_t in_channels = 0;
    std::int64_t out_channels = 0;
    std::int64_t bins = 0;
    std::int64_t kernel_size = 0;
    std::int64_t stride = 1;
  };
  explicit BinConv(const Options& options);
  [[nodiscard]] Tensor forward(const Tensor& x) override { return forward_activated(x, {}); }
  [[nodiscard]] Tensor forward_activated(const Tensor& x, const ConvOutputOptions& output) const;

 private:
  Options options_;
};

}  // namespace polyphase::networks
