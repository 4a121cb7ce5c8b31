#pragma once
// How a state is loaded into the tensors of a module. Not for users: see Module::load_state_dict.

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

/// The copies to make, and lists of the keys that do not fit.
struct LoadPlan {
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  std::string missing;
  std::string unexpected;
  std::string misshapen;
};

/// Finds the slot of each key. Besides the slots' own names it accepts
///   - both spellings of a weight norm (weight_g and weight_v, parametrizations.weight.original0 and 1), each for the other,
/// and
///     both together for a `weight` that the module holds folded;
///   - (1, C, 1) for an `alpha` (C), the shape in which DAC saves its Snake's.
/// Throws Error if two slots have the same name.
[[nodiscard]] LoadPlan plan_load(std::span<const Slot> slots, const NamedTensors& state);

}  // namespace polyphase::layers
