#include "tensor/tensor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "tensor/operation.hpp"
#include "tensor/random.hpp"
#include "tensor/tensor_backend.hpp"

namespace polyphase {
namespace {

std::size_t bytes_of(const char* operation, const Shape& shape, DType dtype) {
  const std::int64_t numel = shape.numel();
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  require<ShapeError>(numel <= std::numeric_limits<std::int64_t>::max() / size, operation, ": the bytes of ", shape, " ", dtype,
                      " do not fit 64 bits");
  return static_cast<std::size_t>(numel * size);
}

// Returns the generator's state and advances it past a draw: four 32-bit words per block, two words per f64.
GeneratorState take_blocks(Generator* generator, std::int64_t numel, DType dtype) {
  Generator& source = generator != nullptr ? *generator : default_generator();
  const std::uint64_t per_block = dtype == DType::f64 ? 2 : 4;
  return source.take((static_cast<std::uint64_t>(numel) + per_block - 1) / per_block);
}

// Draws into a fresh tensor with `draw(out, state)`.
template <class Draw>
Tensor random_tensor(const char* operation, const Shape& shape, const TensorOptions& options, Generator* generator,
                     const Draw& draw) {
  require<DTypeError>(is_floating_point(options.dtype), operation, ": expected a floating-point dtype, got ", options.dtype);
  Tensor out = Tensor::empty(shape, {options.dtype, options.device});
  if (out.numel() > 0) draw(out, take_blocks(generator, out.numel(), options.dtype));
  return out.set_requires_grad(options.requires_grad);
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, const TensorOptions& options) {
  auto impl = std::make_shared<Impl>();
  const std::size_t bytes = bytes_of("empty", shape, options.dtype);
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->numel = shape.numel();
  impl->dtype = options.dtype;
  impl->storage = Storage(bytes, options.device);
  Tensor tensor;
  tensor.impl_ = std::move(impl);
  if (options.requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, const TensorOptions& options) {
  require_representable("full", value, options.dtype);
  Tensor tensor = empty(shape, options);
  if (tensor.numel() > 0) tensor_backend_of(options.device).fill(tensor, value);
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, const TensorOptions& options) { return full(shape, 0, options); }

Tensor Tensor::ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1, options); }

Tensor Tensor::arange(double start, double end, double step, const TensorOptions& options) {
  const double length = std::ceil((end - start) / step);
  require<ShapeError>(step != 0 && std::isfinite(length) && length < 0x1p62, "arange: expected finite bounds and a step other ",
                      "than 0, got start ", start, ", end ", end, ", step ", step);
  require_representable("arange", start, options.dtype);
  require_representable("arange", step, options.dtype);
  const auto count = static_cast<std::int64_t>(std::max(length, 0.0));
  Tensor out = empty({count}, {options.dtype, options.device});
  if (count > 0) tensor_backend_of(options.device).arange(out, start, step);
  return out.set_requires_grad(options.requires_grad);
}

Tensor Tensor::randn(const Shape& shape, const TensorOptions& options, Generator* generator) {
  return random_tensor("randn", shape, options, generator, [&](const Tensor& out, GeneratorState state) {
    tensor_backend_of(options.device).normal(out, state, 0, 1);
  });
}

Tensor Tensor::uniform(const Shape& shape, double low, double high, const TensorOptions& options, Generator* generator) {
  require<ShapeError>(std::isfinite(low) && std::isfinite(high) && low <= high,
                      "uniform: expected finite bounds with low <= high, got [", low, ", ", high, ")");
  return random_tensor("uniform", shape, options, generator, [&](const Tensor& out, GeneratorState state) {
    tensor_backend_of(options.device).uniform(out, state, low, high);
  });
}

Tensor Tensor::over(Storage storage, const Shape& shape, const Shape& strides, std::int64_t offset, DType dtype) {
  require<ShapeError>(shape.rank() == strides.rank(), "over: expected as many strides as sizes, got shape ", shape,
                      " and strides ", strides);
  const std::int64_t numel = shape.numel();
  std::int64_t last = offset;
  bool fits = offset >= 0;
  for (int i = 0; i < shape.rank(); ++i) {
    require<ShapeError>(strides[i] >= 0, "over: expected strides of at least 0, got ", strides);
    std::int64_t reach = 0;
    if (numel > 0) fits = fits && !__builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
    fits = fits && !__builtin_add_overflow(last, reach, &last);
  }
  const auto capacity = static_cast<std::int64_t>(storage.bytes() / size_of(dtype));
  fits = fits && (numel > 0 ? last < capacity : offset <= capacity);
  require<ShapeError>(fits, "over: shape ", shape, " with strides ", strides, " at offset ", offset, " reaches outside of ",
                      capacity, " elements of ", dtype);
  auto impl = std::make_shared<Impl>();
  impl->storage = std::move(storage);
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = offset;
  impl->numel = numel;
  impl->dtype = dtype;
  Tensor tensor;
  tensor.impl_ = std::move(impl);
  return tensor;
}

bool Tensor::is_contiguous() const {
  const Impl& impl = get();
  if (impl.numel == 0) return true;
  std::int64_t expected = 1;
  for (int i = impl.shape.rank() - 1; i >= 0; --i) {
    if (impl.shape[i] == 1) continue;  // its stride is never used
    if (impl.strides[i] != expected) return false;
    expected *= impl.shape[i];
  }
  return true;
}

void Tensor::read_item(void* value) const {
  require<ShapeError>(numel() == 1, "item: expected a tensor of one element, got shape ", shape());
  const OperationScope scope("item");
  tensor_backend_of(device()).copy_to_host(value, raw(), size_of(dtype()));
}

std::int64_t Tensor::item_as_integer() const {
  std::int64_t value = 0;
  read_item(&value);
  return value;
}

double Tensor::item_as_double() const {
  std::array<std::byte, 8> bytes;
  read_item(bytes.data());
  return dispatch(dtype(), [&]<class T>(T) {
    T value;
    std::copy_n(bytes.data(), sizeof value, reinterpret_cast<std::byte*>(&value));
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      return static_cast<double>(static_cast<float>(value));
    } else {
      return static_cast<double>(value);
    }
  });
}

Tensor TensorAccess::view(const Tensor& base, const Shape& shape, const Shape& strides, std::int64_t offset) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->storage = base.get().storage;
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = offset;
  impl->numel = shape.numel();
  impl->dtype = base.dtype();
  Tensor tensor;
  tensor.impl_ = std::move(impl);
  return tensor;
}

}  // namespace polyphase
