#include "ops/embedding.hpp"

#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {

using autograd::Gradients;
using autograd::Needs;

Tensor embedding(const Tensor& index, const Tensor& weight) {
  ops::require_defined("embedding", "index", index);
  ops::require_floating("embedding", weight);
  require<DTypeError>(index.dtype() == DType::i64, "embedding: expected an index of i64, got ", index.dtype());
  require<DeviceError>(index.device() == weight.device(), "embedding: expected index and weight on one device, got ",
                       index.device(), " and ", weight.device());
  require<ShapeError>(weight.rank() == 2, "embedding: expected weight (V, D), got ", weight.shape());
  const std::int64_t D = weight.size(1), count = index.numel() * D, size = weight.numel();
  Shape shape = index.shape();
  shape.push_back(D);
  const Tensor out = Tensor::empty(shape, {weight.dtype(), weight.device()});
  Tensor elements;  // the place of each element of out in the table, viewed as one row
  {
    const NoGradGuard no_grad;
    const Tensor rows = index.contiguous().reshape({index.numel()});
    Backend& backend = backend_of(weight.device());
    backend.check_index(rows, weight.size(0));
    if (count > 0) {
      const Tensor columns = Tensor::arange(0, static_cast<double>(D), 1, {DType::i64, weight.device()});
      elements = add(mul(rows.unsqueeze(1), static_cast<double>(D)), columns).reshape({count});
      backend.gather(ops::reshaped_view(out, {1, count}), ops::reshaped_view(weight.contiguous(), {1, size}), elements);
    }
  }
  return autograd::record("embedding", out, {weight}, [elements, count, size, w = weight.shape()](const Tensor& g, Needs) {
    const Tensor gradient = Tensor::zeros(w, {g.dtype(), g.device()});
    if (count > 0)
      backend_of(g.device())
          .scatter_add(ops::reshaped_view(gradient, {1, size}), ops::reshaped_view(g.contiguous(), {1, count}), elements);
    return Gradients{gradient};
  });
}

}  // namespace polyphase
