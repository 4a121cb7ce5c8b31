#pragma once
// A strided correlation along the length.

#include "../layers/weight.hpp"
#include "../ops/conv.hpp"

namespace polyphase {

/// (N, C_in, L_in) or (C_in, L_in) -> (N, C_out, L_out) or (C_out, L_out), with
///   L_out = (L_in + P_l + P_r - D*(K - 1) - 1)/S + 1 rounded down
/// Parameters: weight (C_out, C_in/G, K), bias (C_out). Names, defaults and initialisation are PyTorch's.
class Conv1d : public WeightedLayer {
 public:
  struct Options {
    std::int64_t in_channels = 0;   ///< C_in, required
    std::int64_t out_channels = 0;  ///< C_out, required
    std::int64_t kernel_size = 0;   ///< K, required
    std::int64_t stride = 1;
    Padding padding = 0;  ///< {left, right} may differ; Padding::same() keeps the length and needs stride 1
    std::int64_t dilation = 1;
    std::int64_t groups = 1;
    bool bias = true;
    PaddingMode padding_mode = PaddingMode::zeros;
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws ShapeError naming the option that is out of range, DTypeError unless the dtype is floating point.
  explicit Conv1d(const Options& options);

  /// Throws the errors of conv1d().
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  /// residual + scale*activation(forward(x)), x activated first as `input` says, as conv1d() with ConvOutputOptions. Sequential
  /// and Residual use it for their layers.
  [[nodiscard]] Tensor forward_activated(const Tensor& x, const ConvOutputOptions& output,
                                         const ConvInputOptions& input = {}) const;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  [[nodiscard]] Conv1dOptions function_options() const;

  Options options_;
};

}  // namespace polyphase
