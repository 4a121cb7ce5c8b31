// Files: safetensors, weights of other formats, .npy, checkpoints.

#include <nanobind/stl/map.h>

#include "casters.hpp"
#include "core.hpp"
#include "io/checkpoint.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "io/weights.hpp"
#include "states.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

void bind_weights(nb::module_& module) {
  module.def(
      "load_safetensors",
      [](const std::string& path, DeviceArg device) {
        SafetensorsFile file;
        {
          const nb::gil_scoped_release released;
          file = load_safetensors(path, device.device);
        }
        return std::pair{std::move(file.tensors), std::move(file.metadata)};
      },
      "path"_a, "device"_a = nb::none(), R"((tensors, metadata) of a safetensors file, two dicts.

On the CPU tensors refer to the mapped file; writing to them does not change it. Raises FormatError naming what is wrong and where.)");
  module.def(
      "save_safetensors",
      [](const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
        save_safetensors(path, tensors, metadata);
      },
      "path"_a, "tensors"_a, "metadata"_a = nb::dict(), kUnlocked,
      "Writes a dict of tensors and a dict of texts. The file appears complete or not at all. Raises FormatError.");
  module.def(
      "load_weights",
      [](const std::string& path) {
        WeightsFile file;
        {
          const nb::gil_scoped_release released;
          file = load_weights(path);
        }
        return std::move(file.tensors);
      },
      "path"_a,
      "The tensors by name of safetensors, its index of shards, torch.save's files, ONNX's initializers or .npy. Nothing in a "
      "file is\n"
      "executed. Raises FormatError.");
  module.def("load_npy", &load_npy, "path"_a, kUnlocked, "The array of an .npy file. Raises FormatError.");
  module.def("save_npy", &save_npy, "path"_a, "tensor"_a, kUnlocked,
             "Writes an .npy file; bf16 as float32. Raises FormatError.");
}

using States = std::map<std::string, nb::dict>;
using Generators = std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>;

void save(const std::string& path, const NamedTensors& model, const States& states, const Generators& generators,
          std::int64_t step, const std::map<std::string, double>& numbers, const std::map<std::string, std::string>& texts) {
  Checkpoint checkpoint;
  checkpoint.model = model;
  for (const auto& [name, state] : states) checkpoint.states[name] = from_python(state);
  for (const auto& [name, state] : generators) checkpoint.generators[name] = {state.first, state.second};
  checkpoint.step = step;
  checkpoint.numbers = numbers;
  checkpoint.texts = texts;
  const nb::gil_scoped_release released;
  save_checkpoint(path, checkpoint);
}

nb::dict load(const std::string& path) {
  Checkpoint checkpoint;
  {
    const nb::gil_scoped_release released;
    checkpoint = load_checkpoint(path);
  }
  nb::dict states, generators, made;
  for (const auto& [name, state] : checkpoint.states) states[name.c_str()] = to_python(state);
  for (const auto& [name, state] : checkpoint.generators) generators[name.c_str()] = nb::make_tuple(state.seed, state.offset);
  made["model"] = nb::cast(checkpoint.model);
  made["states"] = states;
  made["generators"] = generators;
  made["step"] = checkpoint.step;
  made["numbers"] = nb::cast(checkpoint.numbers);
  made["texts"] = nb::cast(checkpoint.texts);
  return made;
}

}  // namespace

void bind_files(nb::module_& module) {
  bind_weights(module);
  module.def("save_checkpoint", &save, "path"_a, "model"_a = nb::dict(), "states"_a = nb::dict(), "generators"_a = nb::dict(),
             "step"_a = 0, "numbers"_a = nb::dict(), "texts"_a = nb::dict(),
             R"(Writes the whole state of a training run as one safetensors file, which appears complete or not at all.

model: state_dict(); states: state() of optimizers, schedules and averages by name; generators: Generator.state by name; numbers and
texts: your own. Raises FormatError.)");
  module.def("load_checkpoint", &load, "path"_a, nb::sig("def load_checkpoint(path: str) -> dict[str, typing.Any]"),
             "A dict with the arguments of save_checkpoint() as keys. Raises FormatError.");
}

}  // namespace polyphase::python
