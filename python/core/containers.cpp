// Modules made of modules.

#include "casters.hpp"
#include "core.hpp"
#include "layers/antialiased_activation.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/mean_of_branches.hpp"
#include "layers/containers/module_list.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/containers/sum_of_branches.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

/// A child is a module, or a pair of its name and it.
template <class Sequence>
void append(Sequence& sequence, nb::handle child) {
  std::pair<std::string, std::shared_ptr<Module>> named;
  std::shared_ptr<Module> plain;
  if (nb::try_cast(child, plain)) {
    sequence.push_back(std::move(plain));
  } else if (nb::try_cast(child, named)) {
    sequence.push_back(std::move(named.first), std::move(named.second));
  } else {
    throw nb::type_error(concat(Sequence::kName, ": expected modules or pairs (name, module), got ",
                                nb::cast<std::string>(nb::str(child.type())))
                             .c_str());
  }
}

template <class Sequence>
void append_all(Sequence& sequence, const nb::args& children) {
  for (const nb::handle child : children) append(sequence, child);
}

template <class Sequence>
void bind_sequence(nb::module_& module, const char* doc) {
  nb::class_<Sequence, Module>(module, Sequence::kName, doc)
      .def(
          "__init__",
          [](Sequence* self, const nb::args& children) {
            Sequence made;
            append_all(made, children);
            new (self) Sequence(std::move(made));
          },
          "children"_a, nb::sig("def __init__(self, *children: Module | tuple[str, Module]) -> None"))
      .def(
          "push_back",
          [](Sequence& self, nb::handle child) -> Sequence& {
            append(self, child);
            return self;
          },
          "child"_a, nb::rv_policy::none, nb::sig("def push_back(self, child: Module | tuple[str, Module]) -> typing.Self"),
          "Appends a module, or (name, module). Raises Error if another module has the name.")
      .def("__len__", &Sequence::size)
      .def(
          "__getitem__",
          [](const Sequence& self, std::int64_t index) {
            const auto size = static_cast<std::int64_t>(self.size());
            if (index < -size || index >= size)
              throw nb::index_error(
                  concat(Sequence::kName, ": expected an index in [", -size, ", ", size, "), got ", index).c_str());
            return self.modules()[static_cast<std::size_t>(index < 0 ? index + size : index)];
          },
          "index"_a, "One module. Raises IndexError.");
}

}  // namespace

void bind_containers(nb::module_& module) {
  bind_sequence<Sequential>(module, R"(Feeds each module's output to the next.

Children are modules, named by position as in PyTorch ("0.weight"), or pairs (name, module). A convolution and the activation after it
are one pass over memory.)");
  bind_sequence<ModuleList>(module, "A list of modules for a network that calls each of them itself.");
  bind_sequence<MeanOfBranches>(module, "The mean of modules that all get the same input.");
  bind_sequence<SumOfBranches>(module, "The sum of modules that all get the same input.");
  bind_sequence<ChannelsLast>(module, "Runs modules that take (N, L, C) in a network of modules that take (N, C, L).");
  nb::class_<Residual, Module>(module, "Residual", R"(x + scale*block(x), with the modules one after another as the block.

Children are named "block.0", ..., as `name` and pairs (name, module) say. Raises ShapeError if the block changes the shape.)")
      .def(
          "__init__",
          [](Residual* self, const nb::args& children, double scale, const std::string& name) {
            Residual made(Residual::Options{scale, name});
            append_all(made.block(), children);
            new (self) Residual(std::move(made));
          },
          "children"_a, "scale"_a = 1.0, "name"_a = "block",
          nb::sig(
              "def __init__(self, *children: Module | tuple[str, Module], scale: float = 1.0, name: str = 'block') -> None"))
      .def_prop_ro("scale", &Residual::scale, "The factor of what is added.");
  nb::class_<AntialiasedActivation, Module>(module, "AntialiasedActivation",
                                            "BigVGAN's Activation1d: an activation at twice the sampling rate.")
      .def(
          "__init__",
          [](AntialiasedActivation* self, std::shared_ptr<Module> activation, DType dtype, DeviceArg device) {
            new (self) AntialiasedActivation(std::move(activation), {dtype, device.device});
          },
          "activation"_a, "dtype"_a = "f32", "device"_a = nb::none());
}

}  // namespace polyphase::python
