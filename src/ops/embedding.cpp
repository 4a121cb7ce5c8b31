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

/// The gradient of a table (V, D) of which the rows index (J) were taken, from that of the rows, g (J, D).
Tensor table_gradient(const Shape& table, const Tensor& index, const Tensor& g) {
  const std::int64_t D = table[1], count = index.numel() * D;
  const Tensor gradient = Tensor::zeros(table, {g.dtype(), g.device()});
  if (count == 0) return gradient;
  const Tensor columns = Tensor::arange(0, static_cast<double>(D), 1, {DType::i64, g.device()});
  const Tensor elements = add(mul(index.unsqueeze(1), static_cast<double>(D)), columns).reshape({count});
  backend_of(g.device())
      .scatter_add(ops::reshaped_view(gradient, {1, table.numel()}), ops::reshaped_view(g.contiguous(), {1, count}), elements);
  return gradient;
}

/// codes (N, Q, L) and Q tables (V, D) -> (N, L, D), on the tape of the tables.
Tensor summed(const Tensor& codes, const std::vector<Tensor>& weights) {
  const Tensor& first = weights.front();
  const Tensor out = Tensor::empty({codes.size(0), codes.size(2), first.size(1)}, {first.dtype(), first.device()});
  std::vector<EmbeddingTable> tables;
  std::vector<Shape> shapes;
  for (const Tensor& weight : weights) tables.push_back({weight.detach().contiguous()}), shapes.push_back(weight.shape());
  backend_of(first.device()).embed(out, codes, tables, 0);
  const bool followed = autograd::should_record(weights);
  return autograd::record(
      "embedding", out, weights, [shapes, saved = autograd::save_if(followed, codes)](const Tensor& g, Needs needs) {
        const Tensor& index = saved.get();
        const Tensor rows = g.reshape({index.size(0) * index.size(2), g.size(2)});
        Gradients gradients(shapes.size());
        for (std::size_t q = 0; q < shapes.size(); ++q)
          if (needs[static_cast<int>(q)])
            gradients[q] =
                table_gradient(shapes[q], index.select(1, static_cast<std::int64_t>(q)).contiguous().flatten(), rows);
        return gradients;
      });
}

}  // namespace

Tensor embedding(const Tensor& index, const Tensor& weight) {
  ops::require_defined("embedding", "index", index);
  ops::require_floating("embedding", weight);
  require<DTypeError>(index.dtype() == DType::i64, "embedding: expected an index of i64, got ", index.dtype());
  require<DeviceError>(index.device() == weight.device(), "embedding: expected index and weight on one device, got ",
                       index.device(), " and ", weight.device());
  require<ShapeError>(weight.rank() == 2, "embedding: expected weight (V, D), got ", weight.shape());
  Shape shape = index.shape();
  shape.push_back(weight.size(1));
  const Tensor rows = index.detach().contiguous();
  return summed(ops::reshaped_view(rows, {1, 1, rows.numel()}), {weight}).reshape(shape);
}

Tensor embedding_sum(const Tensor& codes, const std::vector<Tensor>& weights) {
  constexpr const char* name = "embedding_sum";
  ops::require_defined(name, "codes", codes);
  require<DTypeError>(codes.dtype() == DType::i64, name, ": expected codes of i64, got ", codes.dtype());
  const auto Q = static_cast<std::int64_t>(weights.size());
  require<ShapeError>(Q >= 1 && codes.rank() == 3 && codes.size(1) == Q, name, ": expected codes (N, Q=", Q, " >= 1, L), got ",
                      codes.shape());
  for (const Tensor& weight : weights) {
    ops::require_floating(name, weight);
    require<ShapeError>(weight.rank() == 2 && weight.size(1) == weights[0].size(1), name,
                        ": expected weights (V, D) of one D, got ", weights[0].shape(), " and ", weight.shape());
    require<DeviceError>(codes.device() == weight.device(), name, ": expected codes and weights on one device, got ",
                         codes.device(), " and ", weight.device());
  }
  ops::require_alike(name, weights);
  return summed(codes.detach(), weights);
}

Tensor entries_of_means(const Tensor& codes, const std::vector<EmbeddingTable>& tables, double least_usage) {
  const Tensor& first = tables.front().rows;
  const Tensor out = Tensor::empty({codes.size(0), codes.size(2), first.size(1)}, {first.dtype(), first.device()});
  std::vector<EmbeddingTable> dense;
  for (const EmbeddingTable& table : tables)
    dense.push_back({table.rows.detach().contiguous(), table.usage.detach().contiguous()});
  backend_of(first.device()).embed(out, codes.detach(), dense, least_usage);
  return out;
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
