// Exceptions: each class of tensor/error.hpp has a Python class of the same name.

#include <array>
#include <exception>

#include "core.hpp"
#include "tensor/error.hpp"

namespace polyphase::python {
namespace {

enum ErrorClass : std::size_t { kError, kShape, kDType, kDevice, kOutOfMemory, kFormat, kAutograd, kNotImplemented, kClasses };
std::array<PyObject*, kClasses> classes;  // live as long as the process

PyObject* make_class(nb::module_& module, const char* name, const char* doc, std::initializer_list<PyObject*> bases) {
  nb::list list;
  for (PyObject* base : bases) list.append(nb::handle(base));
  const nb::object made = nb::handle(reinterpret_cast<PyObject*>(&PyType_Type))(name, nb::tuple(list), [&] {
    nb::dict members;
    members["__doc__"] = doc;
    members["__module__"] = "polyphase._core";
    return members;
  }());
  module.attr(name) = made;
  return made.inc_ref().ptr();
}

void translate(const std::exception_ptr& failure, void*) {
  const auto raise = [](ErrorClass which, const std::exception& error) { PyErr_SetString(classes[which], error.what()); };
  try {
    std::rethrow_exception(failure);
  } catch (const ShapeError& error) {
    raise(kShape, error);
  } catch (const DTypeError& error) {
    raise(kDType, error);
  } catch (const DeviceError& error) {
    raise(kDevice, error);
  } catch (const OutOfMemory& error) {
    raise(kOutOfMemory, error);
  } catch (const FormatError& error) {
    raise(kFormat, error);
  } catch (const AutogradError& error) {
    raise(kAutograd, error);
  } catch (const NotImplemented& error) {
    raise(kNotImplemented, error);
  } catch (const Error& error) {
    raise(kError, error);
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  classes[kError] = make_class(module, "Error", "Base of all errors of the library.", {PyExc_RuntimeError});
  PyObject* const base = classes[kError];
  classes[kShape] =
      make_class(module, "ShapeError", "A shape, size or hyper-parameter that does not fit.", {base, PyExc_ValueError});
  classes[kDType] = make_class(module, "DTypeError", "A dtype that the operation does not accept, or a mix of dtypes.",
                               {base, PyExc_TypeError});
  classes[kDevice] =
      make_class(module, "DeviceError", "A missing device, tensors on different devices, or a failed device call.", {base});
  classes[kOutOfMemory] = make_class(module, "OutOfMemory", "A failed allocation.", {base, PyExc_MemoryError});
  classes[kFormat] =
      make_class(module, "FormatError", "A file that could not be read or written, or whose content is malformed.",
                 {base, PyExc_ValueError});
  classes[kAutograd] = make_class(module, "AutogradError", "Misuse of the tape.", {base});
  classes[kNotImplemented] =
      make_class(module, "NotImplemented", "A feature that does not exist.", {base, PyExc_NotImplementedError});
  nb::register_exception_translator(translate);
}

}  // namespace polyphase::python
