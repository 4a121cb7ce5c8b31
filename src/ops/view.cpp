// Views: new shapes and strides over the same storage, with their adjoints.

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "autograd/node.hpp"
#include "device/backend.hpp"
#include "ops/reduce.hpp"
#include "tensor/tensor.hpp"

namespace polyphase {
namespace {

using autograd::Gradients;
using autograd::Needs;

// A recorded view whose gradient is `adjoint(g)`.
template <class Adjoint>
Tensor make_view(const char* name, const Tensor& base, const Shape& shape, const Shape& strides, std::int64_t offset,
                 Adjoint adjoint) {
  return autograd::record(name, TensorAccess::view(base, shape, strides, offset), {base},
                          [adjoint = std::move(adjoint)](const Tensor& g, Needs) { return Gradients{adjoint(g)}; });
}

// The adjoint of taking a part: zeros outside the part. `take` selects the part in a tensor of the base's shape.
template <class Take>
auto put_back(const Tensor& base, Take take) {
  return [shape = base.shape(), take = std::move(take)](const Tensor& g) {
    const Tensor whole = Tensor::zeros(shape, {g.dtype(), g.device()});
    Tensor part = take(whole);
    part.copy_(g);
    return whole;
  };
}

// The adjoint of views that neither repeat nor leave out elements and keep their row-major order.
auto reshape_back(const Tensor& base) {
  return [shape = base.shape()](const Tensor& g) { return g.reshape(shape); };
}

// Resolves a size of -1, if there is one, and checks the number of elements.
Shape resolve_shape(const char* operation, const Tensor& tensor, const Shape& shape) {
  Shape resolved = shape;
  int unknown = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != -1) continue;
    require<ShapeError>(unknown < 0, operation, ": expected at most one size of -1, got ", shape);
    unknown = i;
    resolved[i] = 1;
  }
  const std::int64_t known = resolved.numel();
  if (unknown >= 0) {
    require<ShapeError>(known > 0 && tensor.numel() % known == 0, operation, ": cannot fill in the -1 of ", shape, " with the ",
                        tensor.numel(), " elements of ", tensor.shape());
    resolved[unknown] = tensor.numel() / known;
  }
  require<ShapeError>(resolved.numel() == tensor.numel(), operation, ": expected a shape of ", tensor.numel(),
                      " elements like ", tensor.shape(), ", got ", shape);
  return resolved;
}

// Strides that give `shape` over the tensor's elements in row-major order; nothing if a copy is needed.
std::optional<Shape> strides_for(const Tensor& tensor, const Shape& shape) {
  if (tensor.numel() == 0 || tensor.is_contiguous()) return contiguous_strides(shape);
  Shape strides = Shape::filled(shape.rank(), 1);
  int to = shape.rank() - 1;
  std::int64_t run = 1;          // elements of the old dimensions merged so far
  std::int64_t base_stride = 1;  // between the elements of this run
  for (int from = tensor.rank() - 1; from >= 0; --from) {
    if (run == 1) base_stride = tensor.stride(from);
    run *= tensor.size(from);
    // The run continues if the next dimension out continues it without a gap.
    const bool continues = from > 0 && (tensor.size(from - 1) == 1 || run == 1 || tensor.stride(from - 1) == run * base_stride);
    if (continues) continue;
    std::int64_t taken = 1;
    while (to >= 0 && (taken < run || shape[to] == 1)) {
      strides[to] = taken * base_stride;
      taken *= shape[to--];
    }
    if (taken != run) return std::nullopt;
    run = 1;
  }
  return strides;
}

}  // namespace

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step) const {
  const int d = normalize_dim("slice", dim, rank());
  require<ShapeError>(step >= 1, "slice: expected a step of at least 1, got ", step);
  const std::int64_t length = shape()[d];
  const auto bound = [length](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + length : i, 0, length); };
  const std::int64_t first = bound(start);
  const std::int64_t span = std::max<std::int64_t>(bound(end) - first, 0);
  Shape new_shape = shape();
  Shape new_strides = strides();
  new_shape[d] = span == 0 ? 0 : (span - 1) / step + 1;
  if (new_shape[d] > 1) new_strides[d] *= step;
  return make_view("slice", *this, new_shape, new_strides, offset() + (span == 0 ? 0 : first * strides()[d]),
                   put_back(*this, [=](const Tensor& whole) { return whole.slice(d, start, end, step); }));
}

Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  const int d = normalize_dim("narrow", dim, rank());
  require<ShapeError>(start >= 0 && length >= 0 && length <= shape()[d] - start, "narrow: expected a range inside [0, ",
                      shape()[d], ") of dimension ", d, ", got start ", start, " and length ", length);
  return slice(d, start, start + length);
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  const int d = normalize_dim("select", dim, rank());
  const std::int64_t length = shape()[d];
  require<ShapeError>(index >= -length && index < length, "select: expected an index in [", -length, ", ", length,
                      ") of dimension ", d, ", got ", index);
  Shape new_shape = shape();
  Shape new_strides = strides();
  new_shape.erase(d);
  new_strides.erase(d);
  const std::int64_t position = index < 0 ? index + length : index;
  return make_view("select", *this, new_shape, new_strides, offset() + position * strides()[d],
                   put_back(*this, [=](const Tensor& whole) { return whole.select(d, position); }));
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  const int a = normalize_dim("transpose", dim0, rank());
  const int b = normalize_dim("transpose", dim1, rank());
  Shape new_shape = shape();
  Shape new_strides = strides();
  std::swap(new_shape[a], new_shape[b]);
  std::swap(new_strides[a], new_strides[b]);
  return make_view("transpose", *this, new_shape, new_strides, offset(), [=](const Tensor& g) { return g.transpose(a, b); });
}

Tensor Tensor::permute(const std::vector<int>& dims) const {
  require<ShapeError>(static_cast<int>(dims.size()) == rank(), "permute: expected ", rank(), " dimensions for shape ", shape(),
                      ", got ", dims.size());
  Shape new_shape = shape();
  Shape new_strides = strides();
  std::vector<int> inverse(dims.size(), -1);
  for (int i = 0; i < rank(); ++i) {
    const int from = normalize_dim("permute", dims[static_cast<std::size_t>(i)], rank());
    require<ShapeError>(inverse[static_cast<std::size_t>(from)] < 0, "permute: expected each dimension once, got ", from,
                        " twice");
    inverse[static_cast<std::size_t>(from)] = i;
    new_shape[i] = shape()[from];
    new_strides[i] = strides()[from];
  }
  return make_view("permute", *this, new_shape, new_strides, offset(),
                   [inverse](const Tensor& g) { return g.permute(inverse); });
}

Tensor Tensor::expand(const Shape& shape) const {
  const int added = shape.rank() - rank();
  require<ShapeError>(added >= 0, "expand: expected at least ", rank(), " sizes for shape ", this->shape(), ", got ", shape);
  Shape new_shape = shape;
  Shape new_strides = Shape::filled(shape.rank(), 0);
  for (int i = 0; i < shape.rank(); ++i) {
    const std::int64_t size = i < added ? 1 : this->shape()[i - added];
    if (shape[i] == -1 && i >= added) new_shape[i] = size;
    require<ShapeError>(new_shape[i] >= 0 && (size == 1 || size == new_shape[i]), "expand: expected a shape that ",
                        this->shape(), " broadcasts to, got ", shape);
    if (size == new_shape[i] && i >= added) new_strides[i] = strides()[i - added];
  }
  return make_view("expand", *this, new_shape, new_strides, offset(),
                   [from = this->shape()](const Tensor& g) { return sum_to(g, from); });
}

Tensor Tensor::view(const Shape& shape) const {
  const Shape new_shape = resolve_shape("view", *this, shape);
  const std::optional<Shape> new_strides = strides_for(*this, new_shape);
  require<ShapeError>(new_strides.has_value(), "view: shape ", this->shape(), " with strides ", strides(),
                      " cannot be seen as ", new_shape, " without a copy; use reshape");
  return make_view("view", *this, new_shape, *new_strides, offset(), reshape_back(*this));
}

Tensor Tensor::reshape(const Shape& shape) const {
  const Shape new_shape = resolve_shape("reshape", *this, shape);
  if (const std::optional<Shape> new_strides = strides_for(*this, new_shape)) {
    return make_view("reshape", *this, new_shape, *new_strides, offset(), reshape_back(*this));
  }
  return contiguous().view(new_shape);
}

Tensor Tensor::flatten(int start_dim, int end_dim) const {
  if (rank() == 0) return reshape({1});
  const int first = normalize_dim("flatten", start_dim, rank());
  const int last = normalize_dim("flatten", end_dim, rank());
  require<ShapeError>(first <= last, "flatten: expected start_dim <= end_dim, got ", first, " and ", last);
  Shape merged;
  Shape new_shape;
  for (int i = 0; i < rank(); ++i) {
    if (i < first || i > last) new_shape.push_back(shape()[i]);
    if (i >= first && i <= last) merged.push_back(shape()[i]);
    if (i == last) new_shape.push_back(merged.numel());
  }
  return reshape(new_shape);
}

Tensor Tensor::squeeze(int dim) const {
  const int d = normalize_dim("squeeze", dim, rank());
  if (shape()[d] != 1) return *this;
  Shape new_shape = shape();
  Shape new_strides = strides();
  new_shape.erase(d);
  new_strides.erase(d);
  return make_view("squeeze", *this, new_shape, new_strides, offset(), reshape_back(*this));
}

Tensor Tensor::unsqueeze(int dim) const {
  const int d = normalize_dim("unsqueeze", dim, rank() + 1);
  Shape new_shape = shape();
  Shape new_strides = strides();
  new_shape.insert(d, 1);
  new_strides.insert(d, d < rank() ? shape()[d] * strides()[d] : 1);
  return make_view("unsqueeze", *this, new_shape, new_strides, offset(), reshape_back(*this));
}

Tensor Tensor::unfold(std::int64_t size, std::int64_t step) const {
  require<ShapeError>(rank() >= 1, "unfold: expected (..., L), got a tensor of rank 0");
  const std::int64_t length = shape().back();
  require<ShapeError>(size >= 1 && size <= length && step >= 1, "unfold: expected 1 <= size <= L=", length,
                      " and step >= 1, got size ", size, " and step ", step);
  step = std::min(step, length);  // which is never applied: there is one window
  const int d = rank() - 1;
  Shape new_shape = shape();
  Shape new_strides = strides();
  new_shape[d] = (length - size) / step + 1;
  new_strides[d] *= step;
  new_shape.push_back(size);
  new_strides.push_back(strides()[d]);
  return make_view("unfold", *this, new_shape, new_strides, offset(), [from = shape(), size, step](const Tensor& g) {
    const Tensor whole = Tensor::empty(from, {g.dtype(), g.device()});
    if (whole.numel() == 0) return whole;
    const Tensor windows = g.contiguous();
    backend_of(g.device()).fold(whole.reshape({-1, from.back()}), windows.reshape({-1, g.size(-2), size}), step);
    return whole;
  });
}

}  // namespace polyphase
