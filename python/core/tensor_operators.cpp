// Tensor's operators and indexing.

#include "casters.hpp"
#include "core.hpp"
#include "ops/elementwise.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

/// x[index]: the view, and how much of the index it has used.
struct Walk {
  Tensor view;
  int dim = 0;
};

std::int64_t position(nb::handle number) {
  std::int64_t value = 0;
  if (!nb::try_cast(number, value))
    throw nb::type_error("Tensor: expected an index of ints, slices, None and ..., got another type");
  return value;
}

void take_position(Walk& walk, nb::handle number) {
  const std::int64_t index = position(number), size = walk.view.size(walk.dim);
  if (index < -size || index >= size)
    throw nb::index_error(concat("Tensor: expected an index in [", -size, ", ", size, ") of dimension ", walk.dim, " of ",
                                 walk.view.shape(), ", got ", index)
                              .c_str());
  walk.view = walk.view.select(walk.dim, index);
}

void take_slice(Walk& walk, const nb::slice& range) {
  const auto [start, stop, step, length] = range.compute(static_cast<std::size_t>(walk.view.size(walk.dim)));
  if (step < 1) throw nb::value_error(concat("Tensor: expected slices with a step of at least 1, got ", step).c_str());
  walk.view = walk.view.slice(walk.dim, static_cast<std::int64_t>(start), static_cast<std::int64_t>(length == 0 ? start : stop),
                              static_cast<std::int64_t>(step));
  ++walk.dim;
}

Tensor at(const Tensor& self, nb::handle index) {
  const nb::tuple parts = nb::isinstance<nb::tuple>(index) ? nb::borrow<nb::tuple>(index) : nb::make_tuple(index);
  int used = 0, ellipses = 0;
  for (const nb::handle part : parts) {
    ellipses += part.is(nb::ellipsis()) ? 1 : 0;
    used += part.is_none() || part.is(nb::ellipsis()) ? 0 : 1;
  }
  if (used > self.rank() || ellipses > 1)
    throw nb::index_error(concat("Tensor: expected an index of at most ", self.rank(), " dimensions and one ... for shape ",
                                 self.shape(), ", got ", used, " and ", ellipses)
                              .c_str());
  Walk walk{self};
  for (const nb::handle part : parts) {
    if (part.is(nb::ellipsis())) {
      walk.dim += self.rank() - used;
    } else if (part.is_none()) {
      walk.view = walk.view.unsqueeze(walk.dim++);
    } else if (nb::isinstance<nb::slice>(part)) {
      take_slice(walk, nb::borrow<nb::slice>(part));
    } else {
      take_position(walk, part);
    }
  }
  return walk.view;
}

void set_at(const Tensor& self, nb::handle index, nb::handle value) {
  Tensor view = at(self, index);
  if (nb::isinstance<Tensor>(value)) {
    view.copy_(nb::cast<const Tensor&>(value));
  } else {
    view.fill_(nb::cast<double>(value));
  }
}

std::int64_t length(const Tensor& self) {
  if (self.rank() == 0) throw nb::type_error("Tensor: a tensor without dimensions has no len()");
  return self.size(0);
}

double number(const Tensor& self) { return self.item(); }

#define POLYPHASE_OPERATOR(name, reflected, in_place, op)                                                                      \
  tensor                                                                                                                       \
      .def(                                                                                                                    \
          name, [](const Tensor& a, const Tensor& b) { return a op b; }, "other"_a, nb::is_operator(), kUnlocked)              \
      .def(                                                                                                                    \
          name, [](const Tensor& a, double b) { return a op b; }, "other"_a, nb::is_operator(), kUnlocked)                     \
      .def(                                                                                                                    \
          reflected, [](const Tensor& a, double b) { return b op a; }, "other"_a, nb::is_operator(), kUnlocked)                \
      .def(                                                                                                                    \
          in_place, [](Tensor& a, const Tensor& b) -> Tensor& { return a op## = b; }, "other"_a, nb::is_operator(), kUnlocked, \
          nb::rv_policy::none, nb::sig("def " in_place "(self, other: Tensor) -> Tensor"))                                     \
      .def(                                                                                                                    \
          in_place, [](Tensor& a, double b) -> Tensor& { return a op## = b; }, "other"_a, nb::is_operator(), kUnlocked,        \
          nb::rv_policy::none, nb::sig("def " in_place "(self, other: float) -> Tensor"))

}  // namespace

void bind_tensor_operators(nb::class_<Tensor>& tensor) {
  POLYPHASE_OPERATOR("__add__", "__radd__", "__iadd__", +);
  POLYPHASE_OPERATOR("__sub__", "__rsub__", "__isub__", -);
  POLYPHASE_OPERATOR("__mul__", "__rmul__", "__imul__", *);
  POLYPHASE_OPERATOR("__truediv__", "__rtruediv__", "__itruediv__", /);
  tensor
      .def(
          "__neg__", [](const Tensor& a) { return -a; }, kUnlocked)
      .def(
          "__pow__", [](const Tensor& a, double exponent) { return pow(a, exponent); }, "exponent"_a, nb::is_operator(),
          kUnlocked)
      .def("__getitem__", &at, "index"_a, nb::sig("def __getitem__(self, index: object, /) -> Tensor"),
           "A view by ints, slices (step >= 1), None and ..., as in NumPy. Raises IndexError.")
      .def("__setitem__", &set_at, "index"_a, "value"_a,
           nb::sig("def __setitem__(self, index: object, value: Tensor | float, /) -> None"),
           "Writes a tensor, broadcast, or one value to x[index].")
      .def("__len__", &length)
      .def("__float__", &number)
      .def("__int__", [](const Tensor& self) { return static_cast<std::int64_t>(number(self)); })
      .def("__bool__", [](const Tensor& self) { return number(self) != 0; });
}

}  // namespace polyphase::python
