#include "layers/linear.hpp"

#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/conv.hpp"
#include "ops/linear.hpp"

namespace polyphase {

Linear::Linear(const Options& options) : options_(options) {
  layers::require_at_least("Linear", "in_features", options.in_features, 1);
  layers::require_at_least("Linear", "out_features", options.out_features, 1);
  layers::require_floating("Linear", options.dtype);
  initialise({options.out_features, options.in_features}, options.bias ? options.out_features : 0,
             {.dtype = options.dtype, .device = options.device});
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight(), bias()); }

Tensor Linear::forward_channels_first(const Tensor& x) {
  require<ShapeError>(x.rank() == 3 && x.size(1) == options_.in_features,
                      "Linear: expected x (N, in_features=", options_.in_features, ", L), got ", x.shape());
  return conv1d(x, weight().unsqueeze(2), bias());
}

std::unique_ptr<ModuleStream> Linear::make_stream() {
  return std::make_unique<layers::PointwiseStream>(
      *this, layers::PointwiseStream::Options{.layout = ModuleStream::Layout::channels_last});
}

}  // namespace polyphase
