#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/no_grad.hpp"
#include "optim/state_reader.hpp"
#include "tensor/backend.hpp"

namespace polyphase {
namespace {

std::string entry_name(std::size_t index, const char* what) { return concat(index, '.', what); }
std::string group_name(std::size_t index, const char* what) { return concat("group", index, '.', what); }

void require_rate(const char* owner, const char* what, double value) {
  require<ShapeError>(std::isfinite(value) && value >= 0, owner, ": expected ", what, " >= 0, got ", value);
}

}  // namespace

Optimizer::Optimizer(const char* name, std::vector<ParameterGroup> groups, Defaults defaults, Moments moments)
    : name_(name), moments_(moments) {
  for (const ParameterGroup& given : groups) {
    Group group;
    group.learning_rate = given.learning_rate.value_or(defaults.learning_rate);
    group.initial_learning_rate = group.learning_rate;
    group.weight_decay = given.weight_decay.value_or(defaults.weight_decay);
    require_rate(name_, "learning_rate", group.learning_rate);
    require_rate(name_, "weight_decay", group.weight_decay);
    group.begin = entries_.size();
    for (const Tensor& parameter : given.parameters) {
      check_new(parameter);
      entries_.push_back({parameter, {}, {}, 0});
    }
    group.end = entries_.size();
    groups_.push_back(group);
  }
  require<ShapeError>(!entries_.empty(), name_, ": expected at least one parameter, got none");
}

void Optimizer::check_new(const Tensor& parameter) const {
  const std::size_t index = entries_.size();
  require<ShapeError>(parameter.defined(), name_, ": parameter ", index, " is undefined");
  require<DTypeError>(is_floating_point(parameter.dtype()), name_, ": expected floating-point parameters, parameter ", index,
                      " is ", parameter.dtype());
  require<AutogradError>(parameter.is_leaf(), name_, ": parameter ", index, " ", parameter.shape(),
                         " is the result of an operation; only leaves can be optimized");
  require<ShapeError>(parameter.is_contiguous(), name_, ": expected contiguous parameters, parameter ", index, " ",
                      parameter.shape(), " has strides ", parameter.strides());
  const auto same = [&](const Entry& entry) { return entry.parameter.is_same(parameter); };
  const auto twin = std::find_if(entries_.begin(), entries_.end(), same);
  require<ShapeError>(twin == entries_.end(), name_, ": parameter ", index, " is the same tensor as parameter ",
                      twin - entries_.begin());
}

void Optimizer::step() {
  const NoGradGuard no_grad;
  for (const Group& group : groups_) step_group(group);
  ++steps_;
}

void Optimizer::allocate_moments(Entry& entry) const {
  if (moments_ != Moments::none && !entry.momentum.defined()) entry.momentum = Tensor::zeros_like(entry.parameter);
  if (moments_ == Moments::momentum_and_second && !entry.second.defined()) entry.second = Tensor::zeros_like(entry.parameter);
}

// Parameters that missed gradients are behind the others, so that each count of steps, like each device, is a call of its own;
// nearly always there is one.
void Optimizer::step_group(const Group& group) {
  struct Batch {
    Device device;
    std::int64_t steps;
    std::vector<OptimizerSlot> slots;
    std::vector<Entry*> entries;
  };
  std::vector<Batch> batches;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    Entry& entry = entries_[i];
    const Tensor grad = entry.parameter.grad();
    if (!grad.defined()) continue;
    allocate_moments(entry);
    const Device device = entry.parameter.device();
    auto batch = std::find_if(batches.begin(), batches.end(),
                              [&](const Batch& b) { return b.device == device && b.steps == entry.steps; });
    if (batch == batches.end()) batch = batches.insert(batches.end(), {device, entry.steps, {}, {}});
    batch->slots.push_back({entry.parameter, grad.contiguous(), entry.momentum, entry.second});
    batch->entries.push_back(&entry);
  }
  for (const Batch& batch : batches) {
    update(backend_of(batch.device), batch.slots, group, batch.steps + 1);
    for (Entry* entry : batch.entries) {
      entry->parameter.storage().bump_version();
      ++entry->steps;
    }
  }
}

void Optimizer::zero_grad() {
  for (const Entry& entry : entries_) entry.parameter.set_grad({});
}

const Optimizer::Group& Optimizer::group_at(std::size_t index) const {
  require<ShapeError>(index < groups_.size(), name_, ": expected a parameter group below ", groups_.size(), ", got ", index);
  return groups_[index];
}

double Optimizer::learning_rate(std::size_t group) const { return group_at(group).learning_rate; }
double Optimizer::initial_learning_rate(std::size_t group) const { return group_at(group).initial_learning_rate; }
double Optimizer::weight_decay(std::size_t group) const { return group_at(group).weight_decay; }

void Optimizer::set_learning_rate(double value, std::size_t group) {
  require_rate(name_, "learning_rate", value);
  (void)group_at(group);
  groups_[group].learning_rate = value;
}

void Optimizer::set_learning_rate(double value) {
  for (std::size_t i = 0; i < groups_.size(); ++i) set_learning_rate(value, i);
}

OptimizerState Optimizer::state() const {
  OptimizerState state;
  state.numbers.emplace_back("parameters", static_cast<double>(entries_.size()));
  state.numbers.emplace_back("steps", static_cast<double>(steps_));
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    state.numbers.emplace_back(group_name(i, "learning_rate"), groups_[i].learning_rate);
    state.numbers.emplace_back(group_name(i, "initial_learning_rate"), groups_[i].initial_learning_rate);
    state.numbers.emplace_back(group_name(i, "weight_decay"), groups_[i].weight_decay);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.steps == 0) continue;
    state.numbers.emplace_back(entry_name(i, "steps"), static_cast<double>(entry.steps));
    if (entry.momentum.defined()) state.tensors.emplace_back(entry_name(i, "momentum"), entry.momentum);
    if (entry.second.defined()) state.tensors.emplace_back(entry_name(i, "second"), entry.second);
  }
  return state;
}

std::vector<Optimizer::Group> Optimizer::read_groups(const StateReader& reader) const {
  std::vector<Group> groups = groups_;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i].learning_rate = reader.number(group_name(i, "learning_rate"));
    groups[i].initial_learning_rate = reader.number(group_name(i, "initial_learning_rate"));
    groups[i].weight_decay = reader.number(group_name(i, "weight_decay"));
    require_rate(name_, "learning_rate", groups[i].learning_rate);
    require_rate(name_, "initial_learning_rate", groups[i].initial_learning_rate);
    require_rate(name_, "weight_decay", groups[i].weight_decay);
  }
  return groups;
}

std::vector<Optimizer::Entry> Optimizer::read_entries(const StateReader& reader) const {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry entry{entries_[i].parameter, {}, {}, 0};
    if (reader.has_number(entry_name(i, "steps"))) {
      entry.steps = reader.count(entry_name(i, "steps"));
      if (moments_ != Moments::none) entry.momentum = reader.tensor(entry_name(i, "momentum"), entry.parameter);
      if (moments_ == Moments::momentum_and_second) entry.second = reader.tensor(entry_name(i, "second"), entry.parameter);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

void Optimizer::load_state(const OptimizerState& state) {
  const NoGradGuard no_grad;
  const StateReader reader(name_, state);
  const std::int64_t parameters = reader.count("parameters");
  require<Error>(parameters == static_cast<std::int64_t>(entries_.size()), name_, "::load_state: expected the state of ",
                 entries_.size(), " parameters, got ", parameters);
  const std::int64_t steps = reader.count("steps");
  std::vector<Group> groups = read_groups(reader);
  std::vector<Entry> entries = read_entries(reader);
  std::size_t tensor_count = 0;
  std::size_t number_count = 2 + 3 * groups.size();
  for (const Entry& entry : entries) {
    tensor_count += (entry.momentum.defined() ? 1U : 0U) + (entry.second.defined() ? 1U : 0U);
    number_count += entry.steps != 0 ? 1U : 0U;
  }
  reader.expect_size(tensor_count, number_count);
  groups_ = std::move(groups);
  entries_ = std::move(entries);
  steps_ = steps;
}

}  // namespace polyphase
