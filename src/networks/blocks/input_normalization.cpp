#include "networks/blocks/input_normalization.hpp"

#include "layers/streaming/module_stream.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {

void InputNormalization::visit(Visitor& visitor) {
  visitor.buffer("mean", mean_);
  visitor.buffer("scale", scale_);
}

Tensor InputNormalization::forward(const Tensor& x) {
  require<ShapeError>(x.rank() == 3 && x.size(1) == mean_.size(0), "input normalization: expected x (N, ", mean_.size(0),
                      ", frames), got ", x.shape());
  return div(sub(x, mean_.unsqueeze(1)), scale_.unsqueeze(1));
}

std::unique_ptr<ModuleStream> InputNormalization::make_stream() {
  return std::make_unique<layers::PointwiseStream>(
      *this, layers::PointwiseStream::Options{.layout = ModuleStream::Layout::channels_first});
}

}  // namespace polyphase
