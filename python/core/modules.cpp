// The class Module, and Python classes derived from it.

#include "layers/module.hpp"

#include <nanobind/trampoline.h>

#include "casters.hpp"
#include "core.hpp"
#include "layers/streaming/module_stream.hpp"
#include "layers/weight.hpp"
#include "layers/weight_norm.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

/// Lists the attributes of a Python module that are tensors or modules, in the order in which they were first set.
void visit_attributes(nb::handle self, Visitor& visitor) {
  const nb::list items(self.attr("__dict__").attr("items")());
  for (const nb::handle item : items) {
    const auto [name, value] = nb::cast<std::pair<std::string, nb::object>>(item);
    if (name.starts_with('_')) continue;
    if (nb::isinstance<Module>(value)) {
      visitor.module(name, nb::cast<Module&>(value));
    } else if (nb::isinstance<Tensor>(value)) {
      auto& tensor = nb::cast<Tensor&>(value);
      if (is_floating_point(tensor.dtype())) {
        visitor.parameter(name, tensor);
      } else {
        visitor.buffer(name, tensor);
      }
    }
  }
}

/// A module that is written in Python.
class PythonModule : public Module {
 public:
  NB_TRAMPOLINE(Module);

  void visit(Visitor& visitor) override {
    const nb::gil_scoped_acquire held;
    const nb::detail::ticket ticket(nb_trampoline, "visit", nb::detail::str_hash("visit"), false);
    if (ticket.key.is_valid()) {
      nb_trampoline.base().attr(ticket.key)(nb::cast(&visitor, nb::rv_policy::reference));
    } else {
      visit_attributes(nb_trampoline.base(), visitor);
    }
  }
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override {
    const nb::gil_scoped_acquire held;
    throw NotImplemented(
        concat("stream: ", class_name(), " is a module in Python, which cannot take its input piece by piece"));
  }
  [[nodiscard]] Tensor forward(const Tensor& x) override {
    const nb::gil_scoped_acquire held;
    const nb::detail::ticket ticket(nb_trampoline, "forward", nb::detail::str_hash("forward"), false);
    if (!ticket.key.is_valid())
      throw NotImplemented(concat("Module: ", class_name(), " has no forward(); define forward(self, x)"));
    return nb::cast<Tensor>(nb_trampoline.base().attr(ticket.key)(x));
  }

 private:
  [[nodiscard]] std::string class_name() const { return nb::cast<std::string>(nb_trampoline.base().type().attr("__name__")); }
};

/// To a dtype or a device, which have no name in common.
void convert(Module& module, std::string_view target) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64})
    if (target == name_of(dtype)) return module.to(dtype);
  module.to(Device::parse(target));
}

void bind_visitor(nb::module_& module) {
  nb::class_<Visitor>(module, "Visitor", "Receives the parts of a module in visit(), in the order of its state_dict().")
      .def(
          "parameter", [](Visitor& self, std::string_view name, Tensor& tensor) { self.parameter(name, tensor); }, "name"_a,
          "tensor"_a, "A learned tensor.")
      .def(
          "buffer", [](Visitor& self, std::string_view name, Tensor& tensor) { self.buffer(name, tensor); }, "name"_a,
          "tensor"_a, "State that is saved but not learned.")
      .def(
          "module", [](Visitor& self, std::string_view name, Module& child) { self.module(name, child); }, "name"_a, "child"_a,
          "A child; its keys begin with name and a dot. With an empty name they become the module's own.");
}

}  // namespace

void bind_modules(nb::module_& module) {
  bind_visitor(module);
  nb::class_<Module, PythonModule>(module, "Module", R"(The base of layers and networks.

    class Block(polyphase.Module):
        def __init__(self):
            super().__init__()
            self.conv = polyphase.Conv1d(8, 8, 3, padding=1)
            self.act = polyphase.Snake(8)

        def forward(self, x):
            return x + self.act(self.conv(x))

Attributes that are modules or tensors are its children, parameters (floating point) and buffers (i64), unless their names begin with
an underscore; define visit(self, visitor) to list them otherwise.)")
      .def(nb::init<>())
      .def("visit", &Module::visit, "visitor"_a, "Lists parameters, buffers and children.")
      .def("forward", &Module::forward, "x"_a, kUnlocked, "The module's result.")
      .def(
          "__call__",
          [](nb::handle self, const nb::args& arguments, const nb::kwargs& named) {
            return self.attr("forward")(*arguments, **named);
          },
          "args"_a, "kwargs"_a, nb::sig("def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any"),
          "forward().")
      .def("named_parameters", &Module::named_parameters,
           "Parameters by their PyTorch names (\"0.weight\"), in order, each tensor once.")
      .def("parameters", &Module::parameters, "Parameters, in order.")
      .def("state_dict", &Module::state_dict, "Parameters and buffers by name, detached, over the module's own elements.")
      .def("load_state_dict", &Module::load_state_dict, "state"_a, "strict"_a = true, kUnlocked,
           "Copies tensors in by name; a weight norm may have either of PyTorch's spellings. Raises Error naming every "
           "missing,\n"
           "unexpected (if strict) and misshapen key; then nothing has changed.")
      .def("to", &convert, "target"_a, kUnlocked,
           "Moves to a device (\"cuda\") or converts to a dtype (\"bf16\") every floating-point tensor. Call it before making "
           "an optimizer.")
      .def("train", &Module::train, "mode"_a = true, "Sets the training mode of this module and all below it.")
      .def("eval", &Module::eval, "train(False).")
      .def_prop_ro("is_training", &Module::is_training, "Whether the module is in training mode, as it is at first.")
      .def("set_requires_grad", &Module::set_requires_grad, "value"_a, "Sets requires_grad of every parameter.")
      .def("zero_grad", &Module::zero_grad, "Drops all gradients.")
      .def("parameter_count", &Module::parameter_count, "The number of elements of all parameters.");

  nb::class_<WeightedLayer, Module>(module, "WeightedLayer", "A layer with a weight and an optional bias.")
      .def_prop_ro("weight", &WeightedLayer::weight, "The weight that forward() uses.")
      .def_prop_ro(
          "bias", [](const WeightedLayer& self) { return or_none(self.bias()); }, nb::sig("def bias(self) -> Tensor | None"),
          "None if the layer has none.")
      .def_prop_ro("has_weight_norm", &WeightedLayer::has_weight_norm, "Whether the weight is g * v/||v||.");
  module.def(
      "weight_norm", [](Module& target) { weight_norm(target); }, "module"_a,
      "Splits the weight of every Conv1d, ConvTranspose1d and Linear into weight_g and weight_v. Call it before making an\n"
      "optimizer. Raises Error if there is no layer with a plain weight.");
  module.def("remove_weight_norm", &remove_weight_norm, "module"_a,
             "Folds weight_g and weight_v into one weight. Raises Error if there is nothing to fold.");
}

}  // namespace polyphase::python
