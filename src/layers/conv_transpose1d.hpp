#pragma once
// The transposed convolution: learned upsampling.

#include <optional>

#include "../layers/weight.hpp"
#include "../ops/conv.hpp"

namespace polyphase {

/// (N, C_in, L_in) or (C_in, L_in) -> (N, C_out, L_out) or (C_out, L_out), with
///   L_out = (L_in - 1)*S - P_l - P_r + D*(K - 1) + OP + 1
/// Parameters: weight (C_in, C_out/G, K), bias (C_out). Names, defaults and initialisation are PyTorch's.
class ConvTranspose1d : public WeightedLayer {
 public:
  struct Options {
    std::int64_t in_channels = 0;   ///< C_in, required
    std::int64_t out_channels = 0;  ///< C_out, required
    std::int64_t kernel_size = 0;   ///< K, required
    std::int64_t stride = 1;
    Padding padding = 0;  ///< cropped from the output's ends; {left, right} may differ
    std::int64_t output_padding = 0;
    std::int64_t groups = 1;
    bool bias = true;
    std::int64_t dilation = 1;
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws ShapeError naming the option that is out of range, DTypeError unless the dtype is floating point.
  explicit ConvTranspose1d(const Options& options);

  /// Throws the errors of conv_transpose1d().
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  /// residual + scale*activation(forward(x)), x activated first as `input` says, as conv_transpose1d() with ConvOutputOptions.
  /// Sequential and Residual use it for their layers.
  [[nodiscard]] Tensor forward_activated(const Tensor& x, const ConvOutputOptions& output,
                                         const ConvInputOptions& input = {}) const;
  using Module::operator();
  /// Chooses the output padding that gives `output_size` positions; the layer's own output padding must be 0.
  [[nodiscard]] Tensor operator()(const Tensor& x, std::int64_t output_size);
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  [[nodiscard]] ConvTranspose1dOptions function_options(std::optional<std::int64_t> output_size) const;

  Options options_;
};

}  // namespace polyphase
