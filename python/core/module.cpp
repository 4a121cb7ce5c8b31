// The extension polyphase._core. The Python files beside it (python/polyphase) make the package of it.

#include "core.hpp"

#include "cuda/cuda.hpp"

namespace polyphase::python {
namespace {

void bind_build(nb::module_& module) {
  module.attr("__version__") = POLYPHASE_VERSION;
  module.attr("with_cuda") = static_cast<bool>(POLYPHASE_WITH_CUDA);
  module.def("cuda_device_count", &cuda::device_count, "The number of GPUs that this process can use. Initialises CUDA.");
  module.def("cuda_unavailable_reason", &cuda::unavailable_reason,
             "Why cuda_device_count() is 0, in words; empty if it is not 0. Initialises CUDA.");
}

}  // namespace
}  // namespace polyphase::python

NB_MODULE(_core, module) {
  using namespace polyphase::python;
  module.doc() = "The compiled part of polyphase; use the package `polyphase`.";
  bind_errors(module);
  bind_build(module);
  bind_raw_conv(module);
}
