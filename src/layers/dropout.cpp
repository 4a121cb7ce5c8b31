#include "layers/dropout.hpp"

#include "layers/streaming/module_stream.hpp"
#include "ops/activations.hpp"

namespace polyphase {

Dropout::Dropout(double p) : p_(p) { require<ShapeError>(p >= 0 && p < 1, "Dropout: expected p in [0, 1), got ", p); }

Tensor Dropout::forward(const Tensor& x) { return dropout(x, p_, is_training()); }

std::unique_ptr<ModuleStream> Dropout::make_stream() {
  return std::make_unique<layers::PointwiseStream>(*this, layers::PointwiseStream::Options{.only_in_eval = true});
}

}  // namespace polyphase
