// Tensors from and to other libraries: DLPack, the buffer protocol, sequences of numbers, pickle.

#include "tensor/dlpack.hpp"

#include <nanobind/stl/tuple.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>

#include "casters.hpp"
#include "core.hpp"
#include "cuda/cuda.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;
using dlpack::DLManagedTensorVersioned;

/// DLPack before version 1, which NumPy 1 and others still give and take.
struct DLManagedTensor {
  dlpack::DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
constexpr const char *kVersioned = "dltensor_versioned", *kLegacy = "dltensor";

DLManagedTensor* to_legacy(DLManagedTensorVersioned* versioned) {
  return new DLManagedTensor{versioned->dl_tensor, versioned, [](DLManagedTensor* self) {
                               auto* const source = static_cast<DLManagedTensorVersioned*>(self->manager_ctx);
                               source->deleter(source);
                               delete self;
                             }};
}

DLManagedTensorVersioned* from_legacy(DLManagedTensor* legacy) {
  return new DLManagedTensorVersioned{dlpack::kVersion, legacy,
                                      [](DLManagedTensorVersioned* self) {
                                        auto* const source = static_cast<DLManagedTensor*>(self->manager_ctx);
                                        if (source->deleter != nullptr) source->deleter(source);
                                        delete self;
                                      },
                                      0, legacy->dl_tensor};
}

/// Frees what nobody took out of a capsule; who takes it renames the capsule.
template <class Managed>
void drop(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

nb::object export_dlpack(const Tensor& self, nb::handle /*stream*/, const std::optional<std::pair<int, int>>& max_version,
                         const std::optional<std::pair<int, int>>& dl_device, std::optional<bool> copy) {
  const bool is_cpu = self.device().is_cpu();
  const std::pair<int, int> place{is_cpu ? dlpack::kDLCPU : dlpack::kDLCUDA, self.device().index};
  if (dl_device && *dl_device != place && *dl_device != std::pair<int, int>{dlpack::kDLCPU, 0})
    throw nb::buffer_error(concat("Tensor: expected dl_device (", place.first, ", ", place.second, ") or the CPU, got (",
                                  dl_device->first, ", ", dl_device->second, ")")
                               .c_str());
  const bool moves = dl_device && *dl_device != place;
  if (moves && copy && !*copy) throw nb::buffer_error("Tensor: expected the tensor's own device with copy=False");
  const Tensor source = moves ? self.cpu() : copy && *copy ? self.clone() : self;
  DLManagedTensorVersioned* const managed = to_dlpack(source);
  PyObject* const capsule =
      max_version && max_version->first >= 1
          ? PyCapsule_New(managed, kVersioned, [](PyObject* held) { drop<DLManagedTensorVersioned>(held, kVersioned); })
          : PyCapsule_New(to_legacy(managed), kLegacy, [](PyObject* held) { drop<DLManagedTensor>(held, kLegacy); });
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

/// The capsule of an object, from a producer that knows version 1 or from an older one. Work that still writes the elements is
/// ordered by the caller, so the producer need not order it for a stream of ours (-1).
nb::object capsule_of(nb::handle source, bool is_cuda) {
  const nb::object stream = is_cuda ? nb::object(nb::int_(-1)) : nb::none();
  try {
    return source.attr("__dlpack__")("stream"_a = stream, "max_version"_a = nb::make_tuple(1, 1));
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return source.attr("__dlpack__")("stream"_a = stream);
}

template <class Managed>
Managed* take(const nb::object& capsule, const char* name, const char* used) {
  if (PyCapsule_IsValid(capsule.ptr(), name) == 0) return nullptr;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (PyCapsule_SetName(capsule.ptr(), used) != 0) throw nb::python_error();
  return managed;
}

Tensor import_dlpack(nb::handle source) {
  if (!nb::hasattr(source, "__dlpack__") || !nb::hasattr(source, "__dlpack_device__"))
    throw nb::type_error(concat("from_dlpack: expected an object with __dlpack__ and __dlpack_device__, got ",
                                nb::cast<std::string>(nb::str(source.type())))
                             .c_str());
  const auto [type, index] = nb::cast<std::pair<int, int>>(source.attr("__dlpack_device__")());
  const bool is_cuda = type == dlpack::kDLCUDA;
  if (is_cuda) {
    const nb::gil_scoped_release released;
    cuda::synchronize(index);
  }
  const nb::object capsule = capsule_of(source, is_cuda);
  if (auto* const versioned = take<DLManagedTensorVersioned>(capsule, kVersioned, "used_dltensor_versioned"))
    return from_dlpack(versioned);
  if (auto* const legacy = take<DLManagedTensor>(capsule, kLegacy, "used_dltensor")) return from_dlpack(from_legacy(legacy));
  throw Error("from_dlpack: expected a capsule named dltensor or dltensor_versioned from __dlpack__");
}

// ---- the buffer protocol
// -----------------------------------------------------------------------------------------------------

struct Format {
  DType dtype;
  const char* text;  // of the module struct
};
constexpr std::array<Format, 4> kFormats{{{DType::f32, "f"}, {DType::f64, "d"}, {DType::f16, "e"}, {DType::i64, "q"}}};

/// What a Py_buffer of a tensor points to.
struct Exported {
  Tensor tensor;
  std::vector<Py_ssize_t> shape, strides;
};

std::unique_ptr<Exported> exported(const Tensor& tensor, int flags) {
  require<Error>(!tensor.requires_grad(), "the tensor requires grad, which a buffer cannot follow; use detach()");
  require<Error>(tensor.device().is_cpu(), "the tensor is on ", tensor.device(), "; use cpu()");
  require<Error>(tensor.dtype() != DType::bf16, "the buffer protocol has no bf16; use to(\"f32\")");
  require<Error>(tensor.is_contiguous() || (flags & PyBUF_STRIDES) == PyBUF_STRIDES,
                 "a contiguous buffer was asked for and the tensor is not; use contiguous()");
  auto made = std::make_unique<Exported>();
  made->tensor = tensor;
  for (int i = 0; i < tensor.rank(); ++i) {
    made->shape.push_back(tensor.shape()[i]);
    made->strides.push_back(tensor.strides()[i] * static_cast<Py_ssize_t>(size_of(tensor.dtype())));
  }
  return made;
}

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    const auto& tensor = nb::cast<const Tensor&>(nb::handle(object));
    auto made = exported(tensor, flags);
    tensor.storage().mark_exported();
    view->buf = tensor.raw();
    view->itemsize = static_cast<Py_ssize_t>(size_of(tensor.dtype()));
    view->len = tensor.numel() * view->itemsize;
    view->readonly = 0;
    view->ndim = tensor.rank();
    view->format = nullptr;
    for (const Format& format : kFormats)
      if (format.dtype == tensor.dtype() && (flags & PyBUF_FORMAT) != 0) view->format = const_cast<char*>(format.text);
    view->shape = (flags & PyBUF_ND) != 0 ? made->shape.data() : nullptr;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? made->strides.data() : nullptr;
    view->suboffsets = nullptr;
    view->internal = made.release();
    view->obj = Py_NewRef(object);
    return 0;
  } catch (const std::exception& error) {
    PyErr_Format(PyExc_BufferError, "Tensor: %s", error.what());
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<Exported*>(view->internal); }

/// A view of another object's buffer.
class Buffer {
 public:
  Buffer(nb::handle source, int flags) {
    if (PyObject_GetBuffer(source.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~Buffer() {
    if (Py_IsInitialized() == 0) return;
    const nb::gil_scoped_acquire held;
    PyBuffer_Release(&view_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] const Py_buffer& view() const { return view_; }

 private:
  Py_buffer view_{};
};

/// The dtype of a struct format. 'l' is i64 where long has 8 bytes.
std::optional<DType> dtype_of_format(std::string_view format, Py_ssize_t item_bytes) {
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) format.remove_prefix(1);
  if (format == "l" && item_bytes == 8) return DType::i64;
  for (const Format& known : kFormats)
    if (format == known.text) return known.dtype;
  return std::nullopt;
}

Tensor from_buffer(nb::handle source) {
  if (PyObject_CheckBuffer(source.ptr()) == 0)
    throw nb::type_error(
        concat("from_buffer: expected an object with the buffer protocol, got ", nb::cast<std::string>(nb::str(source.type())))
            .c_str());
  const auto buffer = std::make_shared<Buffer>(source, PyBUF_FULL_RO);
  const Py_buffer& view = buffer->view();
  const std::string_view format = view.format == nullptr ? "B" : view.format;
  const std::optional<DType> dtype = dtype_of_format(format, view.itemsize);
  require<DTypeError>(dtype.has_value(), "from_buffer: expected elements of format f, d, e or q (f32, f64, f16, i64), got ",
                      format);
  require<ShapeError>(view.ndim <= kMaxRank, "from_buffer: expected at most ", kMaxRank, " dimensions, got ", view.ndim);
  Shape shape, strides;
  std::int64_t reach = 1;
  for (int i = 0; i < view.ndim; ++i) {
    shape.push_back(view.shape[i]);
    strides.push_back(view.strides[i] / view.itemsize);
    require<ShapeError>(view.shape[i] <= 1 || (view.strides[i] >= 0 && view.strides[i] % view.itemsize == 0),
                        "from_buffer: expected strides of whole elements, at least 0, got ", view.strides[i],
                        " bytes in dimension ", i);
    if (view.shape[i] <= 1) strides[i] = 0;
    reach += (view.shape[i] - 1) * strides[i];
  }
  if (shape.numel() == 0) return Tensor::empty(shape, {.dtype = *dtype, .device = Device::cpu()});
  require<Error>(reinterpret_cast<std::uintptr_t>(view.buf) % size_of(*dtype) == 0, "from_buffer: expected ", *dtype,
                 " elements at a multiple of ", size_of(*dtype), " bytes");
  const Tensor tensor =
      Tensor::over(Storage(view.buf, static_cast<std::size_t>(reach) * size_of(*dtype), Device::cpu(), [buffer] {}), shape,
                   strides, 0, *dtype);
  return view.readonly != 0 ? tensor.clone() : tensor;
}

// ---- numbers
// -----------------------------------------------------------------------------------------------------------------

/// The numbers of nested sequences in order, and their shape.
struct Numbers {
  Shape shape;
  std::vector<double> values;
  std::vector<std::int64_t> integers;
  bool all_integers = true;
};

void collect(nb::handle data, int depth, Numbers& numbers) {
  if (PySequence_Check(data.ptr()) == 0 || nb::isinstance<nb::str>(data)) {
    require<ShapeError>(depth == numbers.shape.rank(), "tensor: expected lists of equal length, got a number among lists");
    const bool is_integer = PyLong_Check(data.ptr());
    double value = 0;
    if (!nb::try_cast(data, value))
      throw nb::type_error(concat("tensor: expected numbers, got ", nb::cast<std::string>(nb::str(data.type()))).c_str());
    numbers.values.push_back(value);
    numbers.all_integers = numbers.all_integers && is_integer;
    if (is_integer) numbers.integers.push_back(nb::cast<std::int64_t>(data));
    return;
  }
  const auto length = static_cast<std::int64_t>(nb::len(data));
  if (depth == numbers.shape.rank() && numbers.values.empty()) numbers.shape.push_back(length);
  require<ShapeError>(depth < numbers.shape.rank() && numbers.shape[depth] == length,
                      "tensor: expected lists of equal length, got one of ", length, " in dimension ", depth);
  for (std::int64_t i = 0; i < length; ++i) collect(data[i], depth + 1, numbers);
}

Tensor from_numbers(nb::handle data) {
  Numbers numbers;
  collect(data, 0, numbers);
  if (numbers.all_integers && !numbers.values.empty())
    return Tensor::from_vector(numbers.integers, numbers.shape, Device::cpu());
  return Tensor::from_vector(numbers.values, numbers.shape, Device::cpu());
}

/// The numbers of a buffer of any format that memoryview knows; whole numbers of other sizes become i64.
Tensor copy_of_buffer(nb::handle source) {
  const nb::object view = nb::steal(PyMemoryView_FromObject(source.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  const auto format = nb::cast<std::string>(view.attr("format"));
  const bool is_other_integer = std::string_view("?bBhHiIL").find(format.back()) != std::string_view::npos;
  if (!is_other_integer) return from_buffer(source);
  Numbers numbers;
  collect(view.attr("tolist")(), 0, numbers);
  return Tensor::from_vector(numbers.integers, nb::cast<Shape>(view.attr("shape")), Device::cpu());
}

/// A copy of numbers, an array or a tensor.
Tensor tensor_of(nb::handle data, const std::optional<std::string>& dtype, DeviceArg device, bool requires_grad) {
  Tensor source;
  if (nb::isinstance<Tensor>(data)) {
    source = nb::cast<const Tensor&>(data).detach();
  } else if (PyObject_CheckBuffer(data.ptr()) != 0) {
    source = copy_of_buffer(data);
  } else if (nb::hasattr(data, "__dlpack__")) {
    source = import_dlpack(data);
  } else {
    source = from_numbers(data);
    if (!dtype && source.dtype() == DType::f64) source = source.to(DType::f32);
  }
  const nb::gil_scoped_release released;
  const DType target = dtype ? parse<DType>(*dtype) : source.dtype();
  Tensor made = Tensor::empty(source.shape(), {.dtype = target, .device = device.device});
  made.copy_(source);
  return made.set_requires_grad(requires_grad);
}

nb::object to_list(const Tensor& tensor) {
  if (tensor.rank() == 0)
    return tensor.dtype() == DType::i64 ? nb::object(nb::int_(tensor.item<std::int64_t>()))
                                        : nb::object(nb::float_(tensor.item()));
  nb::list made;
  for (std::int64_t i = 0; i < tensor.size(0); ++i) made.append(to_list(tensor.select(0, i)));
  return made;
}

using State = std::tuple<nb::bytes, Shape, DType, bool>;

State state_of(const Tensor& self) {
  const Tensor host = self.detach().cpu().contiguous();
  return {nb::bytes(host.raw(), static_cast<std::size_t>(host.numel()) * size_of(host.dtype())), host.shape(), host.dtype(),
          self.requires_grad() && self.is_leaf()};
}

void set_state(Tensor& self, const State& state) {
  const auto& [bytes, shape, dtype, requires_grad] = state;
  Tensor made = Tensor::empty(shape, {.dtype = dtype, .device = Device::cpu()});
  const std::size_t size = static_cast<std::size_t>(made.numel()) * size_of(dtype);
  require<ShapeError>(bytes.size() == size, "Tensor: expected ", size, " bytes for ", shape, " ", dtype, ", got ",
                      bytes.size());
  if (size > 0) std::memcpy(made.raw(), bytes.data(), size);
  new (&self) Tensor(made.set_requires_grad(requires_grad));
}

}  // namespace

const PyType_Slot* buffer_slots() {
  static const PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                      {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                                      {0, nullptr}};
  return slots;
}

void bind_exchange(nb::module_& module, nb::class_<Tensor>& tensor) {
  tensor
      .def("__dlpack__", &export_dlpack, nb::kw_only(), "stream"_a.none() = nb::none(), "max_version"_a = nb::none(),
           "dl_device"_a = nb::none(), "copy"_a = nb::none(),
           "The elements for another library, without a copy. Waits for the device, so that any stream may read them. Raises\n"
           "AutogradError on a tensor that requires grad: detach() it.")
      .def("__dlpack_device__",
           [](const Tensor& self) {
             return std::pair<int, int>{self.device().is_cpu() ? dlpack::kDLCPU : dlpack::kDLCUDA, self.device().index};
           })
      .def(
          "numpy", [](const Tensor& self) { return nb::module_::import_("numpy").attr("asarray")(nb::find(self)); },
          nb::sig("def numpy(self) -> numpy.typing.NDArray[typing.Any]"),
          "A NumPy array over the same elements; of a tensor on the CPU that does not require grad and is not bf16 "
          "(BufferError).")
      .def("tolist", &to_list, nb::sig("def tolist(self) -> typing.Any"),
           "The elements as nested lists of numbers. Waits for the device.")
      .def("__getstate__", &state_of, nb::sig("def __getstate__(self) -> tuple[bytes, tuple[int, ...], str, bool]"))
      .def("__setstate__", &set_state,
           nb::sig("def __setstate__(self, state: tuple[bytes, tuple[int, ...], str, bool], /) -> None"))
      .def(
          "__deepcopy__",
          [](const Tensor& self, nb::handle) {
            return self.detach().clone().set_requires_grad(self.requires_grad() && self.is_leaf());
          },
          "memo"_a, "A copy, off the tape.");
  module.def(
      "from_dlpack", &import_dlpack, "source"_a,
      R"(A tensor over the elements of an array of NumPy, PyTorch, JAX, CuPy or another library with DLPack, without a copy.

Read-only arrays are copied, so that writes never reach them. On a GPU it waits for the device. Raises TypeError, DTypeError,
DeviceError, ShapeError.)");
  module.def("from_buffer", &from_buffer, "source"_a,
             R"(A tensor over the memory of an object with the buffer protocol (array.array, memoryview, NumPy), without a copy.

Elements are float, double, half or int64. Read-only memory is copied. Raises TypeError, DTypeError, ShapeError, Error.)");
  module.def("tensor", &tensor_of, "data"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false,
             R"(A copy of numbers, nested lists of them, an array or a tensor.

Floats become f32, ints and whole numbers of any size i64, unless dtype is given; other arrays keep their dtype. Raises TypeError, ShapeError, DTypeError.)");
}

}  // namespace polyphase::python
