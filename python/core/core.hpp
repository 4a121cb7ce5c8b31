#pragma once
// What the files of the extension share: one function each that adds its part to the module.

#include <nanobind/nanobind.h>

#include "tensor/tensor.hpp"

namespace nb = nanobind;

namespace polyphase::python {

/// The exceptions of tensor/error.hpp, each a subclass of polyphase.Error and of the closest built-in exception.
void bind_errors(nb::module_& module);
void bind_tensor(nb::module_& module);
/// Operators and indexing.
void bind_tensor_operators(nb::class_<Tensor>& tensor);
/// DLPack, the buffer protocol, NumPy, pickle.
void bind_exchange(nb::module_& module, nb::class_<Tensor>& tensor);
/// The slots of Tensor's buffer protocol.
[[nodiscard]] const PyType_Slot* buffer_slots();
void bind_functions(nb::module_& module);
void bind_conv(nb::module_& module);
void bind_losses(nb::module_& module);
/// Context managers, the random generator, threads, memory.
void bind_guards(nb::module_& module);
void bind_modules(nb::module_& module);
void bind_layers(nb::module_& module);
void bind_containers(nb::module_& module);
void bind_optimizers(nb::module_& module);
void bind_files(nb::module_& module);
void bind_networks(nb::module_& module);
void bind_cuda(nb::module_& module);
/// Convolutions on raw addresses, for other libraries' tensors.
void bind_raw_conv(nb::module_& module);

/// For calls that compute: other Python threads run meanwhile.
inline constexpr nb::call_guard<nb::gil_scoped_release> kUnlocked{};

/// An optional tensor argument: None is an undefined tensor.
[[nodiscard]] inline Tensor or_undefined(const Tensor* tensor) { return tensor == nullptr ? Tensor{} : *tensor; }
/// An undefined tensor is None.
[[nodiscard]] inline nb::object or_none(const Tensor& tensor) { return tensor.defined() ? nb::cast(tensor) : nb::none(); }

}  // namespace polyphase::python
