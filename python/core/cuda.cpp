// The submodule polyphase.cuda: streams, graphs and memory of NVIDIA GPUs.

#include "cuda/cuda.hpp"

#include <nanobind/stl/function.h>

#include "casters.hpp"
#include "context.hpp"
#include "core.hpp"

namespace polyphase::python {

using namespace nb::literals;

void bind_cuda(nb::module_& module) {
  nb::module_ gpu = module.def_submodule(
      "cuda", "NVIDIA GPUs: streams, graphs, their memory. Without one, what needs it raises DeviceError.");
  gpu.def("device_count", &cuda::device_count, kUnlocked, "GPUs that this process can use. Initialises CUDA.");
  gpu.def("unavailable_reason", &cuda::unavailable_reason, kUnlocked, "Why device_count() is 0; empty if it is not.");
  nb::class_<cuda::Stream>(gpu, "Stream", "A stream: its work runs in order, concurrently with other streams.")
      .def(nb::init<int>(), "device"_a = 0)
      .def_prop_ro("device", &cuda::Stream::device, "The GPU's index.")
      .def_prop_ro(
          "handle", [](const cuda::Stream& self) { return reinterpret_cast<std::uintptr_t>(self.get()); },
          "The cudaStream_t as a number.")
      .def("synchronize", &cuda::Stream::synchronize, kUnlocked, "Waits for all work issued to the stream so far.")
      .def("wait_for", &cuda::Stream::wait_for, "other"_a, kUnlocked,
           "Later work here runs after all work issued to other so far.");
  bind_context<cuda::StreamGuard, const cuda::Stream&>(
      gpu, "StreamGuard", "with StreamGuard(stream): this thread's operations on its device go to the stream.", "stream"_a);
  gpu.def("synchronize", &cuda::synchronize, "device"_a = 0, kUnlocked, "Waits for all work on the device.");
  gpu.def("host_waits", &cuda::host_waits, "How often the calling thread has waited for a GPU.");
  gpu.def("set_memory_limit", &cuda::set_memory_limit, "device"_a, "bytes"_a, kUnlocked,
          "The most bytes of the device's memory that the library may hold.");
  gpu.def("memory_snapshot", &cuda::memory_snapshot, "device"_a = 0, kUnlocked, "Every block of device memory, as JSON.");
  nb::class_<cuda::Graph>(gpu, "Graph", "Recorded work that one call replays. Made by capture().")
      .def("replay", &cuda::Graph::replay, kUnlocked, "Runs the work once; does not wait.")
      .def_prop_ro("replays", &cuda::Graph::replays, "How often it has run.")
      .def_prop_ro("steps", &cuda::Graph::steps, "Kernels, copies and fills of one run.");
  gpu.def("capture", &cuda::capture, "work"_a, "device"_a = 0,
          R"(Records the GPU work of work() instead of running it: a whole training step, or inference.

Run work() once or twice before. Tensors that it uses must outlive the graph. Raises DeviceError naming the operation if work() does
something that cannot be recorded; then nothing has run.)");
  gpu.def("capturing", &cuda::capturing, "Whether the calling thread is in capture().");
}

}  // namespace polyphase::python
