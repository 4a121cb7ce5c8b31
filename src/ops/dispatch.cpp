#include "ops/dispatch.hpp"

namespace polyphase::ops {

void require_alike(const char* operation, std::span<const Tensor> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &tensor;
    require<DTypeError>(tensor.dtype() == first->dtype(), operation, ": expected tensors of one dtype, got ", first->dtype(),
                        " and ", tensor.dtype());
    require<DeviceError>(tensor.device() == first->device(), operation, ": expected tensors on one device, got ",
                         first->device(), " and ", tensor.device());
  }
}

void require_defined(const char* operation, const char* what, const Tensor& tensor) {
  require<Error>(tensor.defined(), operation, ": ", what, " is undefined");
}

void require_floating(const char* operation, const Tensor& tensor) {
  require_defined(operation, "the tensor", tensor);
  require<DTypeError>(is_floating_point(tensor.dtype()), operation, ": expected a floating-point tensor, got ", tensor.dtype());
}

Tensor broadcast_view(const Tensor& tensor, const Shape& shape) {
  if (tensor.shape() == shape) return tensor;
  Shape strides = Shape::filled(shape.rank(), 0);
  const int lead = shape.rank() - tensor.rank();
  for (int d = 0; d < tensor.rank(); ++d)
    if (tensor.shape()[d] == shape[lead + d]) strides[lead + d] = tensor.strides()[d];
  return TensorAccess::view(tensor, shape, strides, tensor.offset());
}

Tensor reshaped_view(const Tensor& tensor, const Shape& shape) {
  return TensorAccess::view(tensor, shape, contiguous_strides(shape), tensor.offset());
}

bool is_half(const Tensor& tensor) { return tensor.dtype() == DType::f16 || tensor.dtype() == DType::bf16; }

Tensor map(const char* operation, MapOp op, std::initializer_list<Tensor> inputs, MapScalars scalars) {
  for (const Tensor& input : inputs) require_defined(operation, "the tensor", input);
  require_alike(operation, std::span<const Tensor>(inputs.begin(), inputs.size()));
  for (const double scalar : {scalars.p, scalars.q}) require_representable(operation, scalar, inputs.begin()->dtype());
  Shape shape = inputs.begin()->shape();
  for (const Tensor& input : inputs)
    if (!(input.shape() == shape)) shape = broadcast_shapes(operation, shape, input.shape());
  const Tensor out = Tensor::empty(shape, {inputs.begin()->dtype(), inputs.begin()->device()});
  if (out.numel() == 0) return out;
  std::array<Tensor, 4> views;
  std::size_t count = 0;
  for (const Tensor& input : inputs) views.at(count++) = broadcast_view(input, shape);
  backend_of(out.device()).map(op, out, std::span<const Tensor>(views.data(), count), scalars);
  return out;
}

Tensor derived(const char* operation, const Tensor& tensor, std::initializer_list<MapStep> steps) {
  require_floating(operation, tensor);
  if (tensor.numel() == 0) return Tensor::empty(tensor.shape(), {tensor.dtype(), tensor.device()});
  return backend_of(tensor.device()).derived(tensor.detach().contiguous(), {steps.begin(), steps.size()});
}

Tensor reduce_map(MapOp op, const Tensor& a, const Tensor& b, MapScalars scalars) {
  const Tensor out = Tensor::empty({}, {is_half(a) ? DType::f32 : a.dtype(), a.device()});
  Backend& backend = backend_of(a.device());
  if (a.numel() == 0) {
    backend.fill(out, 0 * scalars.q);
  } else {
    backend.reduce_map(op, out, a.detach().contiguous(), b.detach().contiguous(), scalars);
  }
  return out;
}

Tensor pair_gradient(MapOp op, const Tensor& a, const Tensor& b, const Tensor& gradient, MapScalars scalars) {
  const Tensor out = Tensor::empty(a.shape(), {a.dtype(), a.device()});
  if (out.numel() != 0) backend_of(out.device()).pair_gradient(op, out, a.contiguous(), b.contiguous(), gradient, scalars);
  return out;
}

SnakeGradients snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient,
                              const SnakeNeeds& needs, const Tensor& added) {
  const TensorOptions options{x.dtype(), x.device()};
  const auto fresh = [&](bool is_wanted, const Shape& shape) { return is_wanted ? Tensor::empty(shape, options) : Tensor(); };
  const Shape batched = x.rank() == 3 ? x.shape() : Shape{1, x.size(0), x.size(1)};
  const Tensor in = fresh(needs.x, x.shape());
  SnakeGradients out{{}, fresh(needs.alpha, alpha.shape()), fresh(needs.beta, beta.shape())};
  if (needs.x) out.x = reshaped_view(in, batched);
  Backend& backend = backend_of(x.device());
  if (x.numel() == 0) {
    for (const Tensor& sums : {out.alpha, out.beta})
      if (sums.defined()) backend.fill(sums, 0);
  } else {
    const auto dense = [&](const Tensor& tensor) { return reshaped_view(tensor.detach().contiguous(), batched); };
    if (needs.x && added.defined()) out.added = dense(added);
    backend.snake_backward(dense(x), alpha.detach().contiguous(), beta.detach().contiguous(), dense(gradient), out);
  }
  out.x = in;
  out.added = {};
  return out;
}

Tensor reduce(ReduceOp op, const Tensor& x, const Shape& out_shape) {
  const Tensor out = Tensor::empty(out_shape, {x.dtype(), x.device()});
  if (out.numel() > 0) backend_of(x.device()).reduce(op, out, x);
  return out;
}

Moments moments(const Tensor& x, const Shape& kept, double q) {
  const auto fresh = [&](const Shape& shape) { return Tensor::empty(shape, {x.dtype(), x.device()}); };
  const Moments out{fresh(kept), fresh(kept), fresh(kept), fresh(x.shape())};
  backend_of(x.device()).moments(out, x, q);
  return out;
}

}  // namespace polyphase::ops
