// Context managers, the random generator, threads, memory.

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/gradcheck.hpp"
#include "autograd/no_grad.hpp"
#include "casters.hpp"
#include "context.hpp"
#include "conv/autotune.hpp"
#include "conv/workspace.hpp"
#include "core.hpp"
#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "tensor/event.hpp"
#include "tensor/memory.hpp"
#include "tensor/random.hpp"

#include <nanobind/stl/function.h>

namespace polyphase::python {
namespace {

using namespace nb::literals;

/// AutocastGuard of a dtype's name, or none to switch casting off.
class Autocast {
 public:
  explicit Autocast(const std::optional<std::string>& dtype) {
    if (dtype) {
      guard_.emplace(parse<DType>(*dtype));
    } else {
      guard_.emplace(std::nullopt);
    }
  }

 private:
  std::optional<AutocastGuard> guard_;
};

void bind_contexts(nb::module_& module) {
  bind_context<NoGradGuard>(module, "NoGradGuard", "with NoGradGuard(): nothing is recorded on this thread.");
  module.attr("no_grad") = module.attr("NoGradGuard");
  bind_context<GradModeGuard, bool>(module, "GradModeGuard", "with GradModeGuard(enabled): recording on or off on this thread.",
                                    "enabled"_a);
  bind_context<Autocast, std::optional<std::string>>(
      module, "AutocastGuard",
      "with AutocastGuard(\"bf16\"): convolutions and products compute in 16 bits on this thread; None switches casting off.\n"
      "f16 needs a GradScaler. Raises DTypeError on entry for any other dtype.",
      "dtype"_a.none());
  bind_context<PrecisionGuard, Precision>(
      module, "PrecisionGuard",
      "with PrecisionGuard(\"tf32\"): the accuracy of f32 convolutions on this thread: ieee, fp32 or tf32.", "precision"_a);
  bind_context<AlgorithmGuard, Algorithm>(module, "AlgorithmGuard",
                                          "with AlgorithmGuard(\"gemm\"): the algorithm of convolutions: automatic, direct, "
                                          "depthwise, tensor_core, gemm or reference.\n"
                                          "A convolution that it cannot compute raises NotImplemented.",
                                          "algorithm"_a);
  bind_context<AutotuneGuard, bool>(module, "AutotuneGuard",
                                    "with AutotuneGuard(True): algorithms are chosen by measuring them.", "enabled"_a);
  bind_context<DeviceGuard, Device>(module, "DeviceGuard",
                                    "with DeviceGuard(\"cuda\"): the device of new tensors on this thread.", "device"_a);
  module.def("grad_enabled", &grad_enabled, "Whether the calling thread records operations.");
  module.def("default_device", &default_device, "The device of new tensors: cpu unless a DeviceGuard says otherwise.");
  module.def("best_device", &Device::best, kUnlocked, "cuda:0 if this build and machine have one, else cpu.");
}

void bind_random(nb::module_& module) {
  nb::class_<Generator>(module, "Generator",
                        "A stream of random numbers; the same seed gives the same numbers on every device. Not thread safe.")
      .def(nb::init<std::uint64_t>(), "seed"_a = 0)
      .def("seed", &Generator::seed, "seed"_a, "Starts again from a seed.")
      .def_prop_rw(
          "state",
          [](const Generator& self) {
            return std::pair{self.state().seed, self.state().offset};
          },
          [](Generator& self, const std::pair<std::uint64_t, std::uint64_t>& state) {
            self.set_state({state.first, state.second});
          },
          "(seed, offset): the whole state.")
      .def("integer", &Generator::integer, "bound"_a, "One integer uniform in [0, bound).")
      .def("uniform", &Generator::uniform, "One number uniform in [0, 1).");
  module.def("default_generator", &default_generator, nb::rv_policy::reference, "The calling thread's generator.");
  module.def("manual_seed", &manual_seed, "seed"_a, "Seeds the calling thread's generator.");
  bind_context<GeneratorGuard, Generator&>(
      module, "GeneratorGuard", "with GeneratorGuard(generator): the default generator of this thread.", "generator"_a);
}

nb::dict stats_of(const MemoryStats& stats) {
  nb::dict made;
  made["live_bytes"] = stats.live_bytes;
  made["cached_bytes"] = stats.cached_bytes;
  made["peak_bytes"] = stats.peak_bytes;
  made["allocations"] = stats.allocations;
  made["live_blocks"] = stats.live_blocks;
  return made;
}

void bind_process(nb::module_& module) {
  module.def("num_threads", &num_threads, "The number of threads of CPU operations.");
  module.def("set_num_threads", &set_num_threads, "count"_a,
             "For the whole process. Raises Error unless count >= 1. After a fork the child computes on one thread.");
  module.def(
      "memory_stats", [](DeviceArg device) { return stats_of(memory_stats(device.device)); }, "device"_a = nb::none(),
      nb::sig("def memory_stats(device: str | None = None) -> dict[str, int]"),
      "live_bytes, cached_bytes, peak_bytes, allocations and live_blocks of a device's allocator.");
  module.def(
      "reset_peak_memory", [](DeviceArg device) { reset_peak_memory(device.device); }, "device"_a = nb::none(),
      "Sets peak_bytes to live_bytes.");
  module.def(
      "empty_cache", [](DeviceArg device) { empty_cache(device.device); }, "device"_a = nb::none(), kUnlocked,
      "Returns cached memory to the system.");
  module.def("conv_workspace_limit", &conv_workspace_limit, "The most bytes of scratch memory of a convolution by gemm.");
  module.def("set_conv_workspace_limit", &set_conv_workspace_limit, "bytes"_a, "Sets conv_workspace_limit().");
  nb::class_<Event>(module, "Event", "A moment in the work of a device, to wait for and to measure time.")
      .def(
          "__init__", [](Event* self, DeviceArg device) { new (self) Event(device.device); }, "device"_a = nb::none())
      .def("record", &Event::record, kUnlocked, "Marks the moment; does not wait.")
      .def("is_done", &Event::is_done, kUnlocked, "Whether the moment is reached. Raises Error before record().")
      .def("synchronize", &Event::synchronize, kUnlocked, "Waits until the moment is reached.")
      .def("elapsed_ms", &Event::elapsed_ms, "end"_a, kUnlocked,
           "Milliseconds to another moment of the device; waits for both.");
  module.def(
      "gradcheck",
      [](const std::function<Tensor(std::vector<Tensor>)>& function, const std::vector<Tensor>& inputs, double step,
         double absolute_tolerance, double relative_tolerance) {
        return gradcheck(function, inputs, {step, absolute_tolerance, relative_tolerance});
      },
      "function"_a, "inputs"_a, "step"_a = 1e-6, "absolute_tolerance"_a = 1e-6, "relative_tolerance"_a = 1e-4,
      "Compares the gradients of function(list of tensors) with central differences: \"\" or the worst disagreement in words.\n"
      "Raises DTypeError unless inputs that require grad are f64.");
}

}  // namespace

void bind_guards(nb::module_& module) {
  bind_contexts(module);
  bind_random(module);
  bind_process(module);
}

}  // namespace polyphase::python
