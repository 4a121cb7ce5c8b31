#pragma once
// Upsampling and pooling without weights.

#include "../layers/activations.hpp"
#include "../ops/length.hpp"

namespace polyphase {

/// (..., L) -> (..., L*scale_factor) by repetition or by linear interpolation (PyTorch's align_corners=False).
class Upsample : public PlainModule {
 public:
  struct Options {
    std::int64_t scale_factor = 0;  ///< required
    UpsampleMode mode = UpsampleMode::nearest;
  };
  /// Throws ShapeError unless scale_factor >= 1.
  explicit Upsample(const Options& options);
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  Options options_;
};

/// (N, C*r, L) -> (N, C, L*r) with r the upscale factor: y[n, c, l*r + i] = x[n, c*r + i, l].
class PixelShuffle1d : public PlainModule {
 public:
  /// Throws ShapeError unless upscale_factor >= 1.
  explicit PixelShuffle1d(std::int64_t upscale_factor);
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  std::int64_t upscale_factor_;
};

/// Means of windows: (..., L) -> (..., (L + 2*padding - kernel_size)/stride + 1), rounded down.
class AvgPool1d : public PlainModule {
 public:
  using Options = AvgPool1dOptions;
  /// Throws ShapeError naming the option that is out of range.
  explicit AvgPool1d(const Options& options);
  /// Throws what avg_pool1d() throws.
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  Options options_;
};

}  // namespace polyphase
