#include "optim/ema.hpp"

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "optim/state_reader.hpp"

namespace polyphase {
namespace {

constexpr const char* kName = "ExponentialMovingAverage";

std::string average_name(std::size_t index) { return concat(index, ".average"); }

}  // namespace

ExponentialMovingAverage::ExponentialMovingAverage(std::vector<Tensor> parameters, const EmaOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  require<ShapeError>(options.decay >= 0 && options.decay < 1, kName, ": expected decay in [0, 1), got ", options.decay);
  require<ShapeError>(!parameters_.empty(), kName, ": expected at least one parameter, got none");
  const NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Device device = parameters_[i].device();
    averages_.push_back(parameters_[i].detach().clone());
    auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.device == device; });
    if (part == parts_.end())
      part = parts_.insert(part, Part{device, Tensor::zeros({}, {.dtype = DType::i64, .device = device})});
    part->members.push_back(i);
  }
}

void ExponentialMovingAverage::update() {
  require<Error>(!applied_, kName, "::update: the averages are applied; call restore() first");
  const NoGradGuard no_grad;
  for (const Part& part : parts_) {
    std::vector<Tensor> averages, values;
    for (const std::size_t i : part.members) {
      averages.push_back(averages_[i]);
      values.push_back(parameters_[i].detach().contiguous());
    }
    backend_of(part.device).average(averages, values, {.decay = options_.decay, .ramp = options_.ramp}, part.updates);
    for (const Tensor& average : averages) average.storage().bump_version();
  }
}

std::int64_t ExponentialMovingAverage::updates() const { return parts_.front().updates.item<std::int64_t>(); }

void ExponentialMovingAverage::exchange() {
  const NoGradGuard no_grad;
  // All copies first: if memory runs out halfway, nothing may have changed.
  std::vector<Tensor> weights;
  for (const Tensor& parameter : parameters_) weights.push_back(parameter.detach().clone());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].copy_(averages_[i]);
    averages_[i].copy_(weights[i]);
  }
  applied_ = !applied_;
}

void ExponentialMovingAverage::apply() {
  require<Error>(!applied_, kName, "::apply: the averages are applied already");
  exchange();
}

void ExponentialMovingAverage::restore() {
  require<Error>(applied_, kName, "::restore: the averages are not applied");
  exchange();
}

OptimizerState ExponentialMovingAverage::state() const {
  require<Error>(!applied_, kName, "::state: the averages are applied; call restore() first");
  OptimizerState state;
  state.numbers.emplace_back("updates", static_cast<double>(updates()));
  for (std::size_t i = 0; i < averages_.size(); ++i) state.tensors.emplace_back(average_name(i), averages_[i]);
  return state;
}

void ExponentialMovingAverage::load_state(const OptimizerState& state) {
  require<Error>(!applied_, kName, "::load_state: the averages are applied; call restore() first");
  const NoGradGuard no_grad;
  const StateReader reader(kName, state);
  const std::int64_t updates = reader.count("updates");
  std::vector<Tensor> averages;
  for (std::size_t i = 0; i < parameters_.size(); ++i) averages.push_back(reader.tensor(average_name(i), parameters_[i]));
  reader.expect_size(averages.size(), 1);
  for (std::size_t i = 0; i < averages.size(); ++i) averages_[i].copy_(averages[i]);
  for (Part& part : parts_) part.updates.fill_(static_cast<double>(updates));
}

}  // namespace polyphase
