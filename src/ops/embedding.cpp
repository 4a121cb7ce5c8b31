#include "ops/embedding.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/argmin.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

using autograd::Gradients;
using autograd::Needs;

namespace {

constexpr std::int64_t kComparedAtOnce = 4096;  // vectors: each has a distance to every row of the codebook

}  // namespace

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

Tensor nearest_code(const Tensor& x, const Tensor& codebook) {
  static constexpr const char* kName = "nearest_code";
  ops::require_floating(kName, x);
  ops::require_floating(kName, codebook);
  ops::require_alike(kName, std::array{x, codebook});
  require<ShapeError>(codebook.rank() == 2 && codebook.size(0) >= 1 && x.rank() >= 1 && x.size(-1) == codebook.size(1), kName,
                      ": expected x (..., D) and codebook (V >= 1, D), got ", x.shape(), " and ", codebook.shape());
  const NoGradGuard no_grad;
  const AutocastGuard exact(std::nullopt);  // 16 bits would find other codes
  const auto wide = [](const Tensor& tensor) {
    return ops::is_half(tensor) ? tensor.detach().to(DType::f32) : tensor.detach();
  };
  const Tensor rows = wide(codebook), halves = mul(sum(square(rows), {1}), 0.5);
  Shape shape = x.shape();
  shape.erase(x.rank() - 1);
  const std::int64_t count = shape.numel();
  const Tensor vectors = wide(x).reshape({count, x.size(-1)});
  std::vector<Tensor> codes;
  for (std::int64_t begin = 0; begin < count; begin += kComparedAtOnce) {
    const Tensor some = vectors.narrow(0, begin, std::min(kComparedAtOnce, count - begin));
    // |x - c|^2 is |x|^2, which all distances share, and twice this:
    codes.push_back(argmin(halves - linear(some, rows), 1));
  }
  return codes.empty() ? Tensor::zeros(shape, {DType::i64, x.device()}) : cat(codes).reshape(shape);
}

Tensor straight_through(const Tensor& x, const Tensor& value) {
  static constexpr const char* kName = "straight_through";
  ops::require_floating(kName, x);
  ops::require_floating(kName, value);
  ops::require_alike(kName, std::array{x, value});
  require<ShapeError>(x.shape() == value.shape(), kName, ": expected two tensors of one shape, got ", x.shape(), " and ",
                      value.shape());
  return autograd::record(kName, value.detach().clone(), {x},
                          [](const Tensor& g, autograd::Needs) { return autograd::Gradients{g}; });
}

void check_codes(const char* operation, const Tensor& codes, std::int64_t size) {
  if (!codes.device().is_cpu()) return;
  for (const std::int64_t code : codes.to_vector<std::int64_t>())
    require<ShapeError>(code >= 0 && code < size, operation, ": expected codes in [0, ", size, "), got ", code);
}

}  // namespace polyphase
