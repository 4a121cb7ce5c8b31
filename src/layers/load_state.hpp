#pragma once
// How a state goes into the tensors of a module. Not for users: Module::load_state_dict does it.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layers/module.hpp"

namespace polyphase::layers {

/// One tensor of a module tree, where the module holds it.
struct Slot {
  std::string name;
  Tensor* tensor;
  bool is_parameter;
};

/// What is to be copied where, and all that speaks against it: lists of keys.
struct LoadPlan {
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  std::string missing;
  std::string unexpected;
  std::string misshapen;
};

/// Finds the slot of each key. Beside the slots' own names it knows
///   - both spellings of a weight norm, weight_g and weight_v, parametrizations.weight.original0 and 1: each for the other, and
///     the two together for a `weight` that the module holds folded;
///   - (1, C, 1) for an `alpha` (C), as DAC saves its Snake's.
/// Throws Error where two slots have one name.
[[nodiscard]] LoadPlan plan_load(std::span<const Slot> slots, const NamedTensors& state);

}  // namespace polyphase::layers
