// The class Tensor: factories, properties, views, conversions, the tape.

#include "tensor/tensor.hpp"

#include "casters.hpp"
#include "core.hpp"
#include "tensor/random.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

TensorOptions options_of(DType dtype, DeviceArg device, bool requires_grad) { return {dtype, device.device, requires_grad}; }

void bind_factories(nb::module_& module) {
  module.def(
      "empty",
      [](const Shape& shape, DType dtype, DeviceArg device, bool requires_grad) {
        return Tensor::empty(shape, options_of(dtype, device, requires_grad));
      },
      "shape"_a, "dtype"_a = "f32", "device"_a = nb::none(), "requires_grad"_a = false, kUnlocked,
      "A tensor of a shape, not initialised. dtype: f32, f64, f16, bf16 or i64; device: cpu or cuda:0; None: the default "
      "device.");
  module.def(
      "full",
      [](const Shape& shape, double value, DType dtype, DeviceArg device, bool requires_grad) {
        return Tensor::full(shape, value, options_of(dtype, device, requires_grad));
      },
      "shape"_a, "value"_a, "dtype"_a = "f32", "device"_a = nb::none(), "requires_grad"_a = false, kUnlocked,
      "A tensor with one value everywhere. Raises DTypeError if the dtype is i64 and cannot hold it.");
  module.def(
      "zeros",
      [](const Shape& shape, DType dtype, DeviceArg device, bool requires_grad) {
        return Tensor::zeros(shape, options_of(dtype, device, requires_grad));
      },
      "shape"_a, "dtype"_a = "f32", "device"_a = nb::none(), "requires_grad"_a = false, kUnlocked, "A tensor of zeros.");
  module.def(
      "ones",
      [](const Shape& shape, DType dtype, DeviceArg device, bool requires_grad) {
        return Tensor::ones(shape, options_of(dtype, device, requires_grad));
      },
      "shape"_a, "dtype"_a = "f32", "device"_a = nb::none(), "requires_grad"_a = false, kUnlocked, "A tensor of ones.");
  module.def(
      "arange",
      [](double start, std::optional<double> end, double step, DType dtype, DeviceArg device) {
        return end ? Tensor::arange(start, *end, step, {dtype, device.device}) : Tensor::arange(start, {dtype, device.device});
      },
      "start"_a, "end"_a = nb::none(), "step"_a = 1.0, "dtype"_a = "f32", "device"_a = nb::none(), kUnlocked,
      "start, start + step, ... below end; with one argument 0, 1, ... below it.");
  module.def(
      "randn",
      [](const Shape& shape, DType dtype, DeviceArg device, bool requires_grad, Generator* generator) {
        return Tensor::randn(shape, options_of(dtype, device, requires_grad), generator);
      },
      "shape"_a, "dtype"_a = "f32", "device"_a = nb::none(), "requires_grad"_a = false, "generator"_a.none() = nb::none(),
      kUnlocked, "Standard normal numbers, from the thread's generator unless one is given.");
  module.def(
      "uniform",
      [](const Shape& shape, double low, double high, DType dtype, DeviceArg device, bool requires_grad, Generator* generator) {
        return Tensor::uniform(shape, low, high, options_of(dtype, device, requires_grad), generator);
      },
      "shape"_a, "low"_a = 0.0, "high"_a = 1.0, "dtype"_a = "f32", "device"_a = nb::none(), "requires_grad"_a = false,
      "generator"_a.none() = nb::none(), kUnlocked, "Numbers uniform in [low, high).");
  module.def("empty_like", &Tensor::empty_like, "other"_a, kUnlocked, "Not initialised, of other's shape, dtype and device.");
  module.def("zeros_like", &Tensor::zeros_like, "other"_a, kUnlocked, "Zeros of other's shape, dtype and device.");
  module.def("ones_like", &Tensor::ones_like, "other"_a, kUnlocked, "Ones of other's shape, dtype and device.");
  module.def("randn_like", &Tensor::randn_like, "other"_a, kUnlocked, "Standard normal, of other's shape, dtype and device.");
}

void bind_properties(nb::class_<Tensor>& tensor) {
  tensor.def_prop_ro("shape", &Tensor::shape, "The sizes, outermost first.")
      .def_prop_ro("strides", &Tensor::strides, "In elements, outermost first.")
      .def_prop_ro("ndim", &Tensor::rank, "The number of dimensions.")
      .def_prop_ro("dtype", &Tensor::dtype, "f32, f64, f16, bf16 or i64.")
      .def_prop_ro("device", &Tensor::device, "cpu or cuda:0.")
      .def_prop_ro("is_leaf", &Tensor::is_leaf, "Whether no recorded operation made it.")
      .def_prop_rw(
          "requires_grad", &Tensor::requires_grad, [](Tensor& self, bool value) { self.set_requires_grad(value); },
          "Whether operations on the tensor are recorded. Setting it on a non-leaf raises AutogradError, on i64 DTypeError.")
      .def_prop_rw(
          "grad", [](const Tensor& self) { return or_none(self.grad()); },
          [](const Tensor& self, const Tensor* grad) { self.set_grad(or_undefined(grad)); },
          nb::for_setter(nb::arg("grad").none()), nb::for_getter(nb::sig("def grad(self) -> Tensor | None")),
          "The accumulated gradient, None before the first backward(). Setting raises ShapeError, DTypeError or DeviceError on "
          "mismatch.")
      .def_prop_ro(
          "data_ptr", [](const Tensor& self) { return reinterpret_cast<std::uintptr_t>(self.raw()); },
          "The address of the first element, on the tensor's device.")
      .def("numel", &Tensor::numel, "The number of elements.")
      .def(
          "size", [](const Tensor& self, int dim) { return self.size(dim); }, "dim"_a,
          "One size; negative dims count from the end.")
      .def("is_contiguous", &Tensor::is_contiguous, "Whether the elements are row-major without gaps.")
      .def(
          "item",
          [](const Tensor& self) -> nb::object {
            if (self.dtype() != DType::i64) {
              double value = 0;
              {
                const nb::gil_scoped_release released;
                value = self.item();
              }
              return nb::float_(value);
            }
            return nb::int_(self.item<std::int64_t>());
          },
          nb::sig("def item(self) -> float | int"),
          "The only element. Waits for the device. Raises ShapeError unless numel() is 1.")
      .def("__repr__", [](const Tensor& self) { return to_string(self); });
}

void bind_views(nb::class_<Tensor>& tensor) {
  tensor
      .def("slice", &Tensor::slice, "dim"_a, "start"_a, "end"_a, "step"_a = 1, kUnlocked,
           "Elements start, start + step, ... below end of one dimension; negative positions count from the end.")
      .def("narrow", &Tensor::narrow, "dim"_a, "start"_a, "length"_a, kUnlocked,
           "`length` elements from `start`; all must exist.")
      .def("select", &Tensor::select, "dim"_a, "index"_a, kUnlocked, "One index; the dimension is removed.")
      .def("transpose", &Tensor::transpose, "dim0"_a, "dim1"_a, kUnlocked, "Two dimensions exchanged, over the same elements.")
      .def(
          "permute", [](const Tensor& self, const Dims& dims) { return self.permute(dims.values); }, "dims"_a, kUnlocked,
          "The dimensions in another order, over the same elements.")
      .def("expand", &Tensor::expand, "shape"_a, kUnlocked, "Broadcasts sizes of 1; -1 keeps a size.")
      .def("reshape", &Tensor::reshape, "shape"_a, kUnlocked,
           "The same elements in another shape; one size may be -1. Copies if it must.")
      .def("view", &Tensor::view, "shape"_a, kUnlocked, "reshape() that raises ShapeError where a copy would be needed.")
      .def("flatten", &Tensor::flatten, "start_dim"_a = 0, "end_dim"_a = -1, kUnlocked, "Several dimensions as one.")
      .def("squeeze", &Tensor::squeeze, "dim"_a, kUnlocked, "Without a dimension of size 1.")
      .def("unsqueeze", &Tensor::unsqueeze, "dim"_a, kUnlocked, "With a dimension of size 1 more.")
      .def("unfold", &Tensor::unfold, "size"_a, "step"_a, kUnlocked,
           "Windows of `size` every `step` along the last dimension: (..., L) -> (..., frames, size), over the same elements.");
}

/// A dtype or a device, which have no name in common.
Tensor converted(const Tensor& self, std::string_view target) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64})
    if (target == name_of(dtype)) return self.to(dtype);
  return self.to(Device::parse(target));
}

void bind_conversions(nb::class_<Tensor>& tensor) {
  tensor.def("contiguous", &Tensor::contiguous, kUnlocked, "This tensor if it is contiguous, else a contiguous copy.")
      .def("clone", &Tensor::clone, kUnlocked, "A copy, recorded on the tape.")
      .def("to", &converted, "target"_a, kUnlocked,
           "Converts to a dtype (`x.to(\"f16\")`) or copies to a device (`x.to(\"cuda\")`). Raises DeviceError for anything "
           "else.")
      .def("cpu", &Tensor::cpu, kUnlocked, "to(\"cpu\").")
      .def(
          "fill_", [](Tensor& self, double value) -> Tensor& { return self.fill_(value); }, "value"_a, kUnlocked,
          nb::rv_policy::none, nb::sig("def fill_(self, value: float) -> Tensor"),
          "Writes one value everywhere. Raises AutogradError on a tensor that requires grad, unless nothing is recorded.")
      .def(
          "copy_", [](Tensor& self, const Tensor& source) -> Tensor& { return self.copy_(source); }, "source"_a, kUnlocked,
          nb::rv_policy::none, nb::sig("def copy_(self, source: Tensor) -> Tensor"),
          "Writes source's elements, broadcast and converted. Raises ShapeError, AutogradError.")
      .def("detach", &Tensor::detach, "The same elements, off the tape.")
      .def(
          "backward",
          [](const Tensor& self, const Tensor* gradient, bool retain_graph) {
            self.backward(or_undefined(gradient), retain_graph);
          },
          "gradient"_a.none() = nb::none(), "retain_graph"_a = false, kUnlocked,
          "Adds d(this)/d(leaf) to every leaf's grad. `gradient` (default 1, for a single element) has this tensor's shape. "
          "The graph\n"
          "is freed unless retain_graph. Raises AutogradError, ShapeError.");
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor> tensor(module, "Tensor", nb::type_slots(buffer_slots()),
                            R"(An n-dimensional array on one device, and its place on the tape.

A Tensor is a handle: views (slice, transpose, x[...]) and detach() share its elements. Made by tensor(), zeros(), from_dlpack(), ...)");
  bind_properties(tensor);
  bind_views(tensor);
  bind_conversions(tensor);
  bind_tensor_operators(tensor);
  bind_exchange(module, tensor);
  bind_factories(module);
}

}  // namespace polyphase::python
