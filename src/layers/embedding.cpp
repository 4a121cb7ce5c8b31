#include "layers/embedding.hpp"

#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/embedding.hpp"

namespace polyphase {

Embedding::Embedding(const Options& options) {
  layers::require_at_least("Embedding", "num_embeddings", options.num_embeddings, 1);
  layers::require_at_least("Embedding", "embedding_dim", options.embedding_dim, 1);
  layers::require_floating("Embedding", options.dtype);
  weight_ = Tensor::randn({options.num_embeddings, options.embedding_dim}, {.dtype = options.dtype, .device = options.device});
  weight_.set_requires_grad(true);
}

void Embedding::visit(Visitor& visitor) { visitor.parameter("weight", weight_); }

Tensor Embedding::forward(const Tensor& index) { return embedding(index, weight_); }

std::unique_ptr<ModuleStream> Embedding::make_stream() {
  return std::make_unique<layers::PointwiseStream>(
      *this, layers::PointwiseStream::Options{.layout = ModuleStream::Layout::channels_last});
}

}  // namespace polyphase
