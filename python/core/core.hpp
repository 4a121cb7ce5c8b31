#pragma once
// What the files of the extension share: one function each that adds its part to the module.

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace polyphase::python {

/// The exceptions of tensor/error.hpp, each a subclass of polyphase.Error and of the closest built-in exception.
void bind_errors(nb::module_& module);
/// Convolutions on raw addresses, for other libraries' tensors.
void bind_raw_conv(nb::module_& module);

}  // namespace polyphase::python
