#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "optim/state_reader.hpp"

namespace polyphase {
namespace {

std::string entry_name(std::size_t index, const char* what) { return concat(index, '.', what); }
std::string group_name(std::size_t index, const char* what) { return concat("group", index, '.', what); }

void require_rate(const char* owner, const char* what, double value) {
  require<ShapeError>(std::isfinite(value) && value >= 0, owner, ": expected ", what, " >= 0, got ", value);
}

// In place if there is a tensor already: recorded steps hold its address.
void take_into(Tensor& kept, const Tensor& loaded) {
  if (!kept.defined()) {
    kept = loaded;
  } else if (loaded.defined()) {
    kept.copy_(loaded);
  } else {
    kept.zero_();
  }
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
      entries_.push_back({parameter, {}, {}});
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

void Optimizer::check_skip(const Tensor& skip) const {
  require<DTypeError>(skip.dtype() == DType::f64, name_, "::step: expected skip of f64, got ", skip.dtype());
  require<ShapeError>(skip.numel() == 1, name_, "::step: expected skip of one element, got ", skip.shape());
  for (const Entry& entry : entries_)
    require<DeviceError>(entry.parameter.device() == skip.device(), name_, "::step: expected skip on the parameters' device ",
                         entry.parameter.device(), ", got ", skip.device());
}

struct Optimizer::Batch {
  std::size_t group;
  Device device;
  std::vector<OptimizerSlot> slots{};
};

void Optimizer::step(const Tensor& skip) {
  if (skip.defined()) check_skip(skip);
  const NoGradGuard no_grad;
  const std::vector<Batch> batches = collect();  // everything that can fail, before anything changes
  std::vector<Device> counted;
  for (const Batch& batch : batches) {
    const bool first = std::find(counted.begin(), counted.end(), batch.device) == counted.end();
    if (first) counted.push_back(batch.device);
    run(batch, skip, first);
  }
}

void Optimizer::require_not_recording(const char* what, Device device) const {
  require<DeviceError>(!device.is_cuda() || !cuda::capturing(), name_, "::step: ", what,
                       " would be created again by every replay; call step() once before cuda::capture");
}

void Optimizer::allocate_moments(Entry& entry) const {
  const bool wants_momentum = moments_ != Moments::none && !entry.momentum.defined();
  const bool wants_second = moments_ == Moments::momentum_and_second && !entry.second.defined();
  if (wants_momentum || wants_second) require_not_recording("moments", entry.parameter.device());
  if (wants_momentum) entry.momentum = Tensor::zeros_like(entry.parameter);
  if (wants_second) entry.second = Tensor::zeros_like(entry.parameter);
}

Optimizer::DeviceState& Optimizer::state_on(Device device) {
  const auto known =
      std::find_if(states_.begin(), states_.end(), [&](const DeviceState& state) { return state.device == device; });
  if (known != states_.end()) return *known;
  require_not_recording("step counts", device);
  const auto groups = static_cast<std::int64_t>(groups_.size());
  const auto counts = static_cast<std::int64_t>(entries_.size()) + 1;
  const DeviceState state{device, Tensor::empty({groups}, {.dtype = DType::f64, .device = device}),
                          Tensor::zeros({counts}, {.dtype = DType::i64, .device = device})};
  write_learning_rates(state);
  return states_.emplace_back(state);
}

void Optimizer::write_learning_rates(const DeviceState& state) const {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    state.learning_rates.select(0, static_cast<std::int64_t>(i)).fill_(groups_[i].learning_rate);
}

std::vector<Optimizer::Batch> Optimizer::collect() {
  std::vector<Batch> batches;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::size_t i = groups_[g].begin; i < groups_[g].end; ++i) {
      Entry& entry = entries_[i];
      const Tensor grad = entry.parameter.grad();
      if (!grad.defined()) continue;
      const Device device = entry.parameter.device();
      const DType dtype = entry.parameter.dtype();
      require<DTypeError>(!device.is_cpu() || dtype == DType::f32 || dtype == DType::f64, name_,
                          "::step: expected parameters of f32 or f64 on cpu, parameter ", i, " is ", dtype);
      allocate_moments(entry);
      (void)state_on(device);
      auto batch =
          std::find_if(batches.begin(), batches.end(), [&](const Batch& b) { return b.group == g && b.device == device; });
      if (batch == batches.end()) batch = batches.insert(batches.end(), Batch{g, device});
      batch->slots.push_back({entry.parameter, grad.contiguous(), entry.momentum, entry.second, static_cast<std::int64_t>(i)});
    }
  }
  return batches;
}

void Optimizer::run(const Batch& batch, const Tensor& skip, bool counts_step) {
  const DeviceState& state = state_on(batch.device);
  update(backend_of(batch.device), batch.slots, groups_[batch.group],
         {.learning_rate = state.learning_rates.select(0, static_cast<std::int64_t>(batch.group)),
          .counts = state.counts,
          .skip = skip,
          .total = counts_step ? static_cast<std::int64_t>(entries_.size()) : -1});
  for (const OptimizerSlot& slot : batch.slots) slot.parameter.storage().bump_version();
}

void Optimizer::zero_grad() {
  for (const Entry& entry : entries_) entry.parameter.set_grad({});
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> parameters;
  for (const Entry& entry : entries_) parameters.push_back(entry.parameter);
  return parameters;
}

// The count of each parameter, then that of step() itself.
std::vector<std::int64_t> Optimizer::read_counts() const {
  std::vector<std::int64_t> counts(entries_.size() + 1, 0);
  for (const DeviceState& state : states_) {
    const std::vector<std::int64_t> there = state.counts.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].parameter.device() == state.device) counts[i] = there[i];
    counts.back() = std::max(counts.back(), there.back());
  }
  return counts;
}

std::int64_t Optimizer::steps() const { return read_counts().back(); }

const Optimizer::Group& Optimizer::group_at(std::size_t index) const {
  require<ShapeError>(index < groups_.size(), name_, ": expected a parameter group below ", groups_.size(), ", got ", index);
  return groups_[index];
}

double Optimizer::learning_rate(std::size_t group) const { return group_at(group).learning_rate; }
double Optimizer::initial_learning_rate(std::size_t group) const { return group_at(group).initial_learning_rate; }
double Optimizer::weight_decay(std::size_t group) const { return group_at(group).weight_decay; }

void Optimizer::set_learning_rate(double value, std::size_t group) {
  require_rate(name_, "learning_rate", value);
  if (group_at(group).learning_rate == value) return;
  require<DeviceError>(!cuda::capturing(), name_,
                       "::set_learning_rate: a rate set in cuda::capture would be set again by every replay; set it, or call "
                       "Scheduler::step, after Graph::replay");
  groups_[group].learning_rate = value;
  for (const DeviceState& state : states_) state.learning_rates.select(0, static_cast<std::int64_t>(group)).fill_(value);
}

void Optimizer::set_learning_rate(double value) {
  for (std::size_t i = 0; i < groups_.size(); ++i) set_learning_rate(value, i);
}

OptimizerState Optimizer::state() const {
  const std::vector<std::int64_t> counts = read_counts();
  OptimizerState state;
  state.numbers.emplace_back("parameters", static_cast<double>(entries_.size()));
  state.numbers.emplace_back("steps", static_cast<double>(counts.back()));
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    state.numbers.emplace_back(group_name(i, "learning_rate"), groups_[i].learning_rate);
    state.numbers.emplace_back(group_name(i, "initial_learning_rate"), groups_[i].initial_learning_rate);
    state.numbers.emplace_back(group_name(i, "weight_decay"), groups_[i].weight_decay);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (counts[i] == 0) continue;
    state.numbers.emplace_back(entry_name(i, "steps"), static_cast<double>(counts[i]));
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

std::vector<Optimizer::LoadedEntry> Optimizer::read_entries(const StateReader& reader) const {
  std::vector<LoadedEntry> loaded;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    LoadedEntry entry;
    if (reader.has_number(entry_name(i, "steps"))) {
      entry.steps = reader.count(entry_name(i, "steps"));
      const Tensor& like = entries_[i].parameter;
      if (moments_ != Moments::none) entry.momentum = reader.tensor(entry_name(i, "momentum"), like);
      if (moments_ == Moments::momentum_and_second) entry.second = reader.tensor(entry_name(i, "second"), like);
    }
    loaded.push_back(std::move(entry));
  }
  return loaded;
}

void Optimizer::take(const std::vector<LoadedEntry>& loaded, std::int64_t steps) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    take_into(entries_[i].momentum, loaded[i].momentum);
    take_into(entries_[i].second, loaded[i].second);
    counts.push_back(loaded[i].steps);
    (void)state_on(entries_[i].parameter.device());
  }
  counts.push_back(steps);
  const Tensor values = Tensor::from_vector(counts, {static_cast<std::int64_t>(counts.size())}, Device::cpu());
  for (DeviceState& state : states_) {
    state.counts.copy_(values);
    write_learning_rates(state);
  }
}

void Optimizer::load_state(const OptimizerState& state) {
  const NoGradGuard no_grad;
  const StateReader reader(name_, state);
  const std::int64_t parameters = reader.count("parameters");
  require<Error>(parameters == static_cast<std::int64_t>(entries_.size()), name_, "::load_state: expected the state of ",
                 entries_.size(), " parameters, got ", parameters);
  const std::int64_t steps = reader.count("steps");
  std::vector<Group> groups = read_groups(reader);
  const std::vector<LoadedEntry> loaded = read_entries(reader);
  std::size_t tensor_count = 0;
  std::size_t number_count = 2 + 3 * groups.size();
  for (const LoadedEntry& entry : loaded) {
    tensor_count += (entry.momentum.defined() ? 1U : 0U) + (entry.second.defined() ? 1U : 0U);
    number_count += entry.steps != 0 ? 1U : 0U;
  }
  reader.expect_size(tensor_count, number_count);
  groups_ = std::move(groups);
  take(loaded, steps);
}

}  // namespace polyphase
