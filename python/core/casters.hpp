#pragma once
// How arguments and results become C++ values: names of enumerators and devices are str, shapes are tuples of int, named
// tensors are dicts. Included by every file that binds something, so that all agree.
//
// A caster may not throw while it reads an argument. Casters that can find a wrong value keep what they read and throw when the
// function is called, so that the user sees the library's message.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layers/module.hpp"
#include "names.hpp"
#include "ops/conv.hpp"
#include "tensor/device.hpp"
#include "tensor/shape.hpp"

namespace polyphase::python {

/// An optional device argument: None is the calling thread's default device.
struct DeviceArg {
  Device device;
};
/// An int or a sequence of them.
struct Dims {
  std::vector<int> values;
};

}  // namespace polyphase::python

namespace nanobind::detail {

/// A value that Python code gives by a name.
template <class T>
struct NameCaster {
  using Value = T;
  static constexpr auto Name = const_name("str");
  template <class>
  using Cast = T;
  template <class>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    return text_.from_python(source, flags, cleanup);
  }
  explicit operator T() { return polyphase::python::parse<T>(text_.value); }
  static handle from_cpp(T value, rv_policy, cleanup_list*) noexcept {
    const std::string name = polyphase::python::to_name(value);
    return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
  }

 private:
  type_caster<std::string_view> text_;
};

template <>
struct type_caster<polyphase::DType> : NameCaster<polyphase::DType> {};
template <>
struct type_caster<polyphase::Device> : NameCaster<polyphase::Device> {};
template <>
struct type_caster<polyphase::Precision> : NameCaster<polyphase::Precision> {};
template <>
struct type_caster<polyphase::Algorithm> : NameCaster<polyphase::Algorithm> {};
template <>
struct type_caster<polyphase::Activation> : NameCaster<polyphase::Activation> {};
template <>
struct type_caster<polyphase::PaddingMode> : NameCaster<polyphase::PaddingMode> {};
template <>
struct type_caster<polyphase::Reduction> : NameCaster<polyphase::Reduction> {};
template <>
struct type_caster<polyphase::UpsampleMode> : NameCaster<polyphase::UpsampleMode> {};
template <>
struct type_caster<polyphase::IstftPadding> : NameCaster<polyphase::IstftPadding> {};
template <>
struct type_caster<polyphase::MelScale> : NameCaster<polyphase::MelScale> {};
template <>
struct type_caster<polyphase::NetworkInput> : NameCaster<polyphase::NetworkInput> {};

template <>
struct type_caster<polyphase::python::DeviceArg> {
  using Value = polyphase::python::DeviceArg;
  static constexpr auto Name = const_name("str");
  template <class>
  using Cast = Value;
  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    is_none_ = source.is_none();
    return is_none_ || text_.from_python(source, flags, cleanup);
  }
  explicit operator Value() { return {is_none_ ? polyphase::default_device() : polyphase::Device::parse(text_.value)}; }

 private:
  type_caster<std::string_view> text_;
  bool is_none_ = false;
};

/// One int or a sequence of ints.
struct IntsCaster {
  template <class>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    type_caster<std::int64_t> one;
    is_one = one.from_python(source, flags, cleanup);
    if (is_one) values = {one.value};
    return is_one || from_sequence(source, flags, cleanup);
  }

  std::vector<std::int64_t> values;
  bool is_one = false;

 private:
  bool from_sequence(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    list_caster<std::vector<std::int64_t>, std::int64_t> all;
    if (!all.from_python(source, flags, cleanup)) return false;
    values = std::move(all.value);
    return true;
  }
};

template <>
struct type_caster<polyphase::Shape> : IntsCaster {
  using Value = polyphase::Shape;
  static constexpr auto Name = io_name("int | collections.abc.Sequence[int]", "tuple[int, ...]");
  template <class>
  using Cast = Value;
  explicit operator Value() { return polyphase::Shape(values); }
  static handle from_cpp(const Value& shape, rv_policy, cleanup_list*) noexcept {
    PyObject* made = PyTuple_New(shape.rank());
    for (int i = 0; made != nullptr && i < shape.rank(); ++i) PyTuple_SetItem(made, i, PyLong_FromLongLong(shape[i]));
    return made;
  }
};

template <>
struct type_caster<polyphase::python::Dims> : IntsCaster {
  using Value = polyphase::python::Dims;
  static constexpr auto Name = const_name("int | collections.abc.Sequence[int]");
  template <class>
  using Cast = Value;
  explicit operator Value() { return {{values.begin(), values.end()}}; }
};

template <>
struct type_caster<polyphase::Padding> : IntsCaster {
  using Value = polyphase::Padding;
  static constexpr auto Name = const_name("int | tuple[int, int] | typing.Literal['same']");
  template <class>
  using Cast = Value;
  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    is_text_ = text_.from_python(source, flags, cleanup);
    return is_text_ || IntsCaster::from_python(source, flags, cleanup);
  }
  explicit operator Value() {
    using polyphase::concat;
    if (is_text_ && text_.value == "same") return polyphase::Padding::same();
    if (is_text_)
      throw polyphase::ShapeError(concat("padding: expected a number, (left, right) or 'same', got '", text_.value, "'"));
    if (is_one) return {values[0], values[0]};
    polyphase::require<polyphase::ShapeError>(values.size() == 2, "padding: expected a number, (left, right) or 'same', got ",
                                              values.size(), " numbers");
    return {values[0], values[1]};
  }

 private:
  type_caster<std::string_view> text_;
  bool is_text_ = false;
};

template <>
struct type_caster<polyphase::NamedTensors> {
  NB_TYPE_CASTER(polyphase::NamedTensors, const_name("dict[str, polyphase.Tensor]"))

  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    dict given;
    if (!try_cast(source, given)) return false;
    for (const auto& [key, element] : given) {
      std::string name;
      polyphase::Tensor* tensor = nullptr;
      if (!try_cast(key, name) || !try_cast(element, tensor) || tensor == nullptr) return false;
      value.emplace_back(std::move(name), *tensor);
    }
    return true;
  }
  static handle from_cpp(const polyphase::NamedTensors& tensors, rv_policy, cleanup_list*) noexcept {
    dict made;
    for (const auto& [name, tensor] : tensors) made[name.c_str()] = cast(tensor);
    return made.release();
  }
};

}  // namespace nanobind::detail
