#pragma once
// A matrix product along the last dimension.

#include "../layers/either_layout.hpp"
#include "../layers/weight.hpp"

namespace polyphase {

/// (..., in_features) -> (..., out_features): y = x w^T + b. Parameters: weight (out_features, in_features),
/// bias (out_features). Names, defaults and initialisation are PyTorch's.
class Linear : public WeightedLayer, public layers::EitherLayout {
 public:
  struct Options {
    std::int64_t in_features = 0;   ///< required
    std::int64_t out_features = 0;  ///< required
    bool bias = true;
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws ShapeError unless both feature counts are at least 1, DTypeError unless the dtype is floating point.
  explicit Linear(const Options& options);
  /// Throws the errors of linear().
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// A convolution with one tap, whose kernels and algorithms it has.
  [[nodiscard]] Tensor forward_channels_first(const Tensor& x) override;
  /// For x (N, L, in_features), in a ChannelsLast.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  Options options_;
};

}  // namespace polyphase
