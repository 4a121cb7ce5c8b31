#include "layers/module.hpp"

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "layers/load_state.hpp"
#include "layers/streaming/module_stream.hpp"

namespace polyphase {

using layers::Slot;

namespace {

/// Walks the tree and lists every defined tensor under its full name.
class Collector : public Visitor {
 public:
  explicit Collector(Module& root) { root.visit(*this); }

  void parameter(std::string_view name, Tensor& tensor) override { add(name, tensor, true); }
  void buffer(std::string_view name, Tensor& tensor) override { add(name, tensor, false); }
  void module(std::string_view name, Module& child) override {
    const std::size_t length = prefix_.size();
    if (!name.empty()) prefix_.append(name).push_back('.');
    child.visit(*this);
    prefix_.resize(length);
  }

  std::vector<Slot> slots;

 private:
  void add(std::string_view name, Tensor& tensor, bool is_parameter) {
    if (tensor.defined()) slots.push_back({prefix_ + std::string(name), &tensor, is_parameter});
  }

  std::string prefix_;
};

/// Sets the mode of the children of one module; each child sets that of its own children.
class TrainVisitor : public Visitor {
 public:
  explicit TrainVisitor(bool mode) : mode_(mode) {}
  void parameter(std::string_view, Tensor&) override {}
  void buffer(std::string_view, Tensor&) override {}
  void module(std::string_view, Module& child) override { child.train(mode_); }

 private:
  bool mode_;
};

/// Replaces every floating-point tensor by convert(tensor) unless is_done(tensor). Shared tensors stay shared. If an error
/// occurs, nothing changes.
template <class IsDone, class Convert>
void convert_all(Module& module, const IsDone& is_done, const Convert& convert) {
  const NoGradGuard no_grad;
  const Collector tree(module);
  std::vector<std::pair<Tensor, Tensor>> done;  // before and after
  std::vector<Tensor> converted;
  for (const Slot& slot : tree.slots) {
    const Tensor& old = *slot.tensor;
    const auto seen = std::find_if(done.begin(), done.end(), [&](const auto& pair) { return pair.first.is_same(old); });
    if (seen != done.end() || !is_floating_point(old.dtype()) || is_done(old)) {
      converted.push_back(seen != done.end() ? seen->second : old);
      continue;
    }
    Tensor fresh = convert(old.detach());
    fresh.set_requires_grad(old.requires_grad());
    if (old.grad().defined()) fresh.set_grad(convert(old.grad()));
    done.emplace_back(old, fresh);
    converted.push_back(fresh);
  }
  for (std::size_t i = 0; i < converted.size(); ++i) *tree.slots[i].tensor = converted[i];
}

}  // namespace

std::unique_ptr<ModuleStream> Module::make_stream() {
  throw NotImplemented(
      concat("stream: ", layers::type_name(*this), " cannot take its input piece by piece (Module::make_stream)"));
}

NamedTensors Module::named_parameters() {
  NamedTensors found;
  for (const Slot& slot : Collector(*this).slots) {
    const auto same = [&](const auto& entry) { return entry.second.is_same(*slot.tensor); };
    if (slot.is_parameter && std::none_of(found.begin(), found.end(), same)) found.emplace_back(slot.name, *slot.tensor);
  }
  return found;
}

std::vector<Tensor> Module::parameters() {
  std::vector<Tensor> tensors;
  for (auto& [name, tensor] : named_parameters()) tensors.push_back(tensor);
  return tensors;
}

NamedTensors Module::state_dict() {
  NamedTensors state;
  for (const Slot& slot : Collector(*this).slots) state.emplace_back(slot.name, slot.tensor->detach());
  return state;
}

void Module::load_state_dict(const NamedTensors& state, bool strict) {
  const NoGradGuard no_grad;
  const layers::LoadPlan plan = layers::plan_load(Collector(*this).slots, state);
  std::string problems;
  if (strict && !plan.missing.empty()) problems += "; missing: " + plan.missing;
  if (strict && !plan.unexpected.empty()) problems += "; unexpected: " + plan.unexpected;
  if (!plan.misshapen.empty()) problems += "; misshapen: " + plan.misshapen;
  require<Error>(problems.empty(), "load_state_dict: the state does not fit the module", problems);
  for (auto [to, from] : plan.copies) to.copy_(from.detach());
}

void Module::to(Device device) {
  convert_all(
      *this, [device](const Tensor& tensor) { return tensor.device() == device; },
      [device](const Tensor& tensor) { return tensor.to(device); });
}

void Module::to(DType dtype) {
  require<DTypeError>(is_floating_point(dtype), "Module::to: expected a floating-point dtype, got ", dtype);
  convert_all(
      *this, [dtype](const Tensor& tensor) { return tensor.dtype() == dtype; },
      [dtype](const Tensor& tensor) { return tensor.to(dtype); });
}

void Module::train(bool mode) {
  training_ = mode;
  TrainVisitor children(mode);
  visit(children);
}

void Module::set_requires_grad(bool value) {
  for (const Slot& slot : Collector(*this).slots) {
    if (slot.is_parameter) slot.tensor->set_requires_grad(value);
  }
}

void Module::zero_grad() {
  for (const Slot& slot : Collector(*this).slots) {
    if (slot.is_parameter) slot.tensor->set_grad({});
  }
}

std::int64_t Module::parameter_count() {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : named_parameters()) count += tensor.numel();
  return count;
}

}  // namespace polyphase
