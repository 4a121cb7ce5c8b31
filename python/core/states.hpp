#pragma once
// The state of optimizers, schedules and averages as dicts.

#include "casters.hpp"
#include "core.hpp"
#include "optim/optimizer.hpp"

namespace polyphase::python {

/// {"tensors": {name: Tensor}, "numbers": {name: float}}.
[[nodiscard]] inline nb::dict to_python(const OptimizerState& state) {
  nb::dict numbers, made;
  for (const auto& [name, number] : state.numbers) numbers[name.c_str()] = number;
  made["tensors"] = nb::cast(NamedTensors(state.tensors));
  made["numbers"] = numbers;
  return made;
}

/// Throws Error unless it is such a dict.
[[nodiscard]] inline OptimizerState from_python(const nb::dict& state) {
  require<Error>(state.contains("tensors") && state.contains("numbers"),
                 "load_state: expected a dict with the keys tensors and numbers, as state() returns it");
  OptimizerState made;
  made.tensors = nb::cast<NamedTensors>(state["tensors"]);
  for (const auto& [name, number] : nb::cast<nb::dict>(state["numbers"]))
    made.numbers.emplace_back(nb::cast<std::string>(name), nb::cast<double>(number));
  return made;
}

}  // namespace polyphase::python
