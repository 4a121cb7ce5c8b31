// The extension polyphase._core. The Python files in python/polyphase make the package of it.

#include "core.hpp"

#include <string>

#include "casters.hpp"
#include "cuda/cuda.hpp"

namespace polyphase::python {
namespace {

void bind_build(nb::module_& module) {
  module.attr("__version__") = POLYPHASE_VERSION;
  module.attr("_with_cuda") = static_cast<bool>(POLYPHASE_WITH_CUDA);
}

/// What `from polyphase._core import *` gives: the library, without the functions on raw addresses.
void name_the_library(nb::module_& module) {
  nb::list names;
  for (const nb::handle name : nb::list(module.attr("__dict__").attr("keys")()))
    if (!nb::cast<std::string>(name).starts_with('_')) names.append(name);
  module.attr("__all__") = names;
}

}  // namespace
}  // namespace polyphase::python

NB_MODULE(_core, module) {
  using namespace polyphase::python;
  // Modules in Python that refer to what holds them stay until the process ends; that is no reason for lines on its way out.
  nb::set_leak_warnings(false);
  module.doc() = "The compiled part of polyphase; use the package `polyphase`.";
  bind_build(module);
  bind_errors(module);
  bind_tensor(module);
  bind_guards(module);
  bind_functions(module);
  bind_conv(module);
  bind_losses(module);
  bind_modules(module);
  bind_layers(module);
  bind_containers(module);
  bind_optimizers(module);
  bind_files(module);
  bind_networks(module);
  bind_cuda(module);
  name_the_library(module);
  bind_raw_conv(module);
}
