#include "optim/ema.hpp"

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
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
  for (const Tensor& parameter : parameters_) averages_.push_back(parameter.detach().clone());
}

void ExponentialMovingAverage::update() {
  require<Error>(!applied_, kName, "::update: the averages are applied; call restore() first");
  const NoGradGuard no_grad;
  const auto n = static_cast<double>(updates_);
  const double decay = options_.ramp ? std::min(options_.decay, (1 + n) / (10 + n)) : options_.decay;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    averages_[i].copy_(add_scaled(averages_[i], parameters_[i] - averages_[i], 1 - decay));
  }
  ++updates_;
}

void ExponentialMovingAverage::exchange() {
  const NoGradGuard no_grad;
  // All copies first: running out of memory halfway must leave everything as it was.
  std::vector<Tensor> weights;
  for (const Tensor& parameter : parameters_) weights.push_back(parameter.detach().clone());
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].copy_(averages_[i]);
  averages_ = std::move(weights);
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
  state.numbers.emplace_back("updates", static_cast<double>(updates_));
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
  averages_ = std::move(averages);
  updates_ = updates;
}

}  // namespace polyphase
