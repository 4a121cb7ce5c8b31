#pragma once
// The tensor: a shape over shared storage, with a place on the tape.
//
// A Tensor is a handle: copies refer to the same elements, as in PyTorch. Views (slice, transpose, expand, ...) share storage
// too. All computations and views are differentiable and live in ops/. In-place writes are not recorded, and are rejected on
// tensors that require gradients.

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "../tensor/device.hpp"
#include "../tensor/dtype.hpp"
#include "../tensor/error.hpp"
#include "../tensor/shape.hpp"
#include "../tensor/storage.hpp"

namespace polyphase {

class Generator;
namespace autograd {
struct Meta;  // gradient, grad_fn: autograd/node.hpp
}

/// The properties of a new tensor: `Tensor::zeros({2, 3}, {.dtype = DType::f64})`.
struct TensorOptions {
  DType dtype = DType::f32;
  Device device = default_device();
  bool requires_grad = false;
};

/// An n-dimensional array on one device. A default-constructed Tensor is undefined: only defined() and assignment are allowed.
class Tensor {
 public:
  Tensor() = default;

  // ---- factories ------------------------------------------------------------------------------------------------
  /// Not initialised.
  [[nodiscard]] static Tensor empty(const Shape& shape, const TensorOptions& options = {});
  [[nodiscard]] static Tensor zeros(const Shape& shape, const TensorOptions& options = {});
  [[nodiscard]] static Tensor ones(const Shape& shape, const TensorOptions& options = {});
  [[nodiscard]] static Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
  /// start, start + step, ... excluding `end`.
  [[nodiscard]] static Tensor arange(double start, double end, double step = 1, const TensorOptions& options = {});
  [[nodiscard]] static Tensor arange(double end, const TensorOptions& options = {}) { return arange(0, end, 1, options); }
  /// Standard normal, from the thread's generator (GeneratorGuard) unless one is given.
  [[nodiscard]] static Tensor randn(const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr);
  /// Uniform in [low, high), both rounded to `dtype`; `low` if they are equal there. f16 and bf16 are rounded from f32.
  [[nodiscard]] static Tensor uniform(const Shape& shape, double low, double high, const TensorOptions& options = {},
                                      Generator* generator = nullptr);
  /// Uniform in [0, 1).
  [[nodiscard]] static Tensor rand(const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr) {
    return uniform(shape, 0, 1, options, generator);
  }
  /// Copies `values` in row-major order; dtype is T's. Throws ShapeError if their number does not match the shape.
  template <class T>
  [[nodiscard]] static Tensor from_vector(const std::vector<T>& values, const Shape& shape, Device device = default_device());
  /// A vector of rank 1.
  template <class T>
  [[nodiscard]] static Tensor from_vector(const std::vector<T>& values) {
    return from_vector(values, Shape{static_cast<std::int64_t>(values.size())});
  }
  [[nodiscard]] static Tensor empty_like(const Tensor& other) { return empty(other.shape(), {other.dtype(), other.device()}); }
  [[nodiscard]] static Tensor zeros_like(const Tensor& other) { return zeros(other.shape(), {other.dtype(), other.device()}); }
  [[nodiscard]] static Tensor ones_like(const Tensor& other) { return ones(other.shape(), {other.dtype(), other.device()}); }
  [[nodiscard]] static Tensor randn_like(const Tensor& other) { return randn(other.shape(), {other.dtype(), other.device()}); }
  /// A tensor over existing storage; `offset` and `strides` in elements. Throws ShapeError if it would reach outside.
  [[nodiscard]] static Tensor over(Storage storage, const Shape& shape, const Shape& strides, std::int64_t offset, DType dtype);

  // ---- what it is -----------------------------------------------------------------------------------------------
  [[nodiscard]] bool defined() const noexcept { return impl_ != nullptr; }
  [[nodiscard]] const Shape& shape() const { return get().shape; }
  [[nodiscard]] const Shape& strides() const { return get().strides; }
  [[nodiscard]] int rank() const { return get().shape.rank(); }
  [[nodiscard]] std::int64_t size(int dim) const { return get().shape[normalize_dim("size", dim, rank())]; }
  [[nodiscard]] std::int64_t stride(int dim) const { return get().strides[normalize_dim("stride", dim, rank())]; }
  [[nodiscard]] std::int64_t numel() const { return get().numel; }
  [[nodiscard]] DType dtype() const { return get().dtype; }
  [[nodiscard]] Device device() const { return get().storage.device(); }
  [[nodiscard]] const Storage& storage() const { return get().storage; }
  [[nodiscard]] std::int64_t offset() const { return get().offset; }
  /// Row-major without gaps.
  [[nodiscard]] bool is_contiguous() const;
  /// Same storage, offset, shape and strides.
  [[nodiscard]] bool is_same(const Tensor& other) const noexcept { return impl_ == other.impl_; }

  // ---- elements -------------------------------------------------------------------------------------------------
  /// Address of the first element, untyped; null where the storage has no bytes. On a device this is a device pointer.
  [[nodiscard]] void* raw() const {
    const Impl& impl = get();
    char* const first = static_cast<char*>(impl.storage.data());
    return first == nullptr ? nullptr : first + impl.offset * static_cast<std::int64_t>(size_of(impl.dtype));
  }
  /// Address of the first element. Throws DTypeError unless T is this tensor's element type.
  template <class T>
  [[nodiscard]] T* data() const {
    require<DTypeError>(dtype_of<T> == dtype(), "data: expected ", name_of(dtype_of<T>), ", the tensor is ", name_of(dtype()));
    return static_cast<T*>(raw());
  }
  /// The only element, converted to T. Waits for the device. Throws ShapeError unless numel() is 1.
  template <class T = double>
  [[nodiscard]] T item() const {
    if constexpr (std::is_integral_v<T>)
      if (dtype() == DType::i64) return static_cast<T>(item_as_integer());
    return static_cast<T>(item_as_double());
  }
  /// All elements in row-major order. Waits for the device. Throws DTypeError unless T is the element type.
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const;

  // ---- views: share storage, differentiable (ops/view) -----------------------------------------------------------
  /// Elements start, start+step, ... below end of one dimension; negative positions count from the end, as in Python. step
  /// >= 1.
  [[nodiscard]] Tensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  /// `length` elements from `start`, all of which must exist.
  [[nodiscard]] Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  /// One index; the dimension is removed.
  [[nodiscard]] Tensor select(int dim, std::int64_t index) const;
  [[nodiscard]] Tensor transpose(int dim0, int dim1) const;
  [[nodiscard]] Tensor permute(const std::vector<int>& dims) const;
  /// Broadcasts sizes of 1; -1 keeps a size.
  [[nodiscard]] Tensor expand(const Shape& shape) const;
  /// Same elements, new shape; one size may be -1. A view where strides allow, else a copy.
  [[nodiscard]] Tensor reshape(const Shape& shape) const;
  /// Like reshape, but throws ShapeError if a copy would be needed.
  [[nodiscard]] Tensor view(const Shape& shape) const;
  [[nodiscard]] Tensor flatten(int start_dim = 0, int end_dim = -1) const;
  [[nodiscard]] Tensor squeeze(int dim) const;
  [[nodiscard]] Tensor unsqueeze(int dim) const;
  /// Windows of `size` every `step` along the last dimension: (..., L) -> (..., frames, size), sharing storage.
  [[nodiscard]] Tensor unfold(std::int64_t size, std::int64_t step) const;

  // ---- copies and conversions, differentiable (ops/copy) ----------------------------------------------------------
  /// This tensor if it is contiguous, else a contiguous copy.
  [[nodiscard]] Tensor contiguous() const;
  [[nodiscard]] Tensor clone() const;
  [[nodiscard]] Tensor to(DType dtype) const;
  /// To a GPU: does not wait. To the host: waits for the GPU.
  [[nodiscard]] Tensor to(Device device) const;
  [[nodiscard]] Tensor cpu() const { return to(Device::cpu()); }

  // ---- in place: never recorded; refused while recording on, or from, a tensor that requires grad ------------------
  /// Throws AutogradError, and DTypeError if the tensor is of i64 and cannot represent `value`.
  Tensor& fill_(double value);
  Tensor& zero_() { return fill_(0); }
  /// Broadcasts and converts dtype and device. Throws ShapeError, AutogradError.
  Tensor& copy_(const Tensor& source);
  /// Writes `*this + other` (ops/elementwise.hpp) to this tensor's elements, which its views and copies share. The other
  /// operators do the same. Only `other` broadcasts, and the dtype stays. Throws ShapeError, DTypeError, DeviceError,
  /// AutogradError; then nothing has changed.
  Tensor& operator+=(const Tensor& other);
  Tensor& operator-=(const Tensor& other);
  Tensor& operator*=(const Tensor& other);
  Tensor& operator/=(const Tensor& other);
  Tensor& operator+=(double value);
  Tensor& operator-=(double value);
  Tensor& operator*=(double value);
  Tensor& operator/=(double value);

  // ---- the tape (autograd/) ---------------------------------------------------------------------------------------
  [[nodiscard]] bool requires_grad() const;
  /// Makes a leaf require gradients, or stop. Throws AutogradError on a non-leaf, DTypeError on i64.
  Tensor& set_requires_grad(bool value);
  [[nodiscard]] bool is_leaf() const;
  /// The accumulated gradient, undefined before the first backward.
  [[nodiscard]] Tensor grad() const;
  /// Replaces (or, with an undefined tensor, drops) the gradient. Throws ShapeError, DTypeError, DeviceError on mismatch.
  void set_grad(const Tensor& grad) const;
  /// The same elements, off the tape.
  [[nodiscard]] Tensor detach() const;
  /// Adds d(this)/d(leaf) to every leaf's grad(). `gradient` (default 1, for a single element) has this tensor's shape. The
  /// graph is freed during the pass unless `retain_graph`. Throws AutogradError, ShapeError.
  void backward(const Tensor& gradient = {}, bool retain_graph = false) const;

 private:
  struct Impl {
    Storage storage;
    Shape shape;
    Shape strides;
    std::int64_t offset = 0;
    std::int64_t numel = 0;
    DType dtype = DType::f32;
    std::shared_ptr<autograd::Meta> meta;  // null if no gradients are required
  };
  friend struct TensorAccess;

  [[nodiscard]] const Impl& get() const {
    if (!impl_) [[unlikely]]
      throw Error("tensor: the tensor is undefined");
    return *impl_;
  }
  void read_item(void* value) const;
  [[nodiscard]] double item_as_double() const;
  [[nodiscard]] std::int64_t item_as_integer() const;

  std::shared_ptr<Impl> impl_;
};

/// Access to a tensor's internals for autograd; not for users.
struct TensorAccess {
  [[nodiscard]] static const std::shared_ptr<autograd::Meta>& meta(const Tensor& tensor) { return tensor.get().meta; }
  static void set_meta(const Tensor& tensor, std::shared_ptr<autograd::Meta> meta) { tensor.impl_->meta = std::move(meta); }
  /// Makes the handle refer to another shape over the same storage (used by views).
  [[nodiscard]] static Tensor view(const Tensor& base, const Shape& shape, const Shape& strides, std::int64_t offset);
};

/// Like NumPy: nested brackets, aligned columns, long dimensions abbreviated in the middle, then dtype and device unless they
/// are f32 and cpu.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
[[nodiscard]] std::string to_string(const Tensor& tensor);

template <class T>
std::vector<T> Tensor::to_vector() const {
  require<DTypeError>(dtype_of<T> == dtype(), "to_vector: expected ", name_of(dtype_of<T>), ", the tensor is ",
                      name_of(dtype()));
  const Tensor host = detach().cpu().contiguous();
  const T* first = host.data<T>();
  return std::vector<T>(first, first + host.numel());
}

template <class T>
Tensor Tensor::from_vector(const std::vector<T>& values, const Shape& shape, Device device) {
  require<ShapeError>(shape.numel() == static_cast<std::int64_t>(values.size()), "from_vector: expected ", shape.numel(),
                      " values for shape ", shape, ", got ", values.size());
  Tensor host = empty(shape, {dtype_of<T>, Device::cpu()});
  T* first = host.data<T>();
  for (std::size_t i = 0; i < values.size(); ++i) first[i] = values[i];
  return host.to(device);
}

}  // namespace polyphase
