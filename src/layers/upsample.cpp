#include "layers/upsample.hpp"

#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"

namespace polyphase {

Upsample::Upsample(const Options& options) : options_(options) {
  layers::require_at_least("Upsample", "scale_factor", options.scale_factor, 1);
}

Tensor Upsample::forward(const Tensor& x) { return upsample1d(x, options_.scale_factor, options_.mode); }

std::unique_ptr<ModuleStream> Upsample::make_stream() {
  const std::int64_t neighbours = options_.mode == UpsampleMode::linear ? 1 : 0;
  return std::make_unique<layers::NeighbourStream>(
      *this, layers::NeighbourStream::Options{.left = neighbours, .right = neighbours, .up = options_.scale_factor});
}

PixelShuffle1d::PixelShuffle1d(std::int64_t upscale_factor) : upscale_factor_(upscale_factor) {
  layers::require_at_least("PixelShuffle1d", "upscale_factor", upscale_factor, 1);
}

Tensor PixelShuffle1d::forward(const Tensor& x) { return pixel_shuffle1d(x, upscale_factor_); }

std::unique_ptr<ModuleStream> PixelShuffle1d::make_stream() {
  return std::make_unique<layers::NeighbourStream>(
      *this, layers::NeighbourStream::Options{.up = upscale_factor_, .channel_divisor = upscale_factor_});
}

AvgPool1d::AvgPool1d(const Options& options) : options_(options) {
  layers::require_at_least("AvgPool1d", "kernel_size", options.kernel_size, 1);
  layers::require_at_least("AvgPool1d", "stride", options.stride, 0);
  require<ShapeError>(options.padding >= 0 && options.padding <= options.kernel_size / 2,
                      "AvgPool1d: expected padding in [0, kernel_size/2=", options.kernel_size / 2, "], got ", options.padding);
}

Tensor AvgPool1d::forward(const Tensor& x) { return avg_pool1d(x, options_); }

}  // namespace polyphase
