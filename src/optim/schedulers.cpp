#include "optim/schedulers.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/state_reader.hpp"

namespace polyphase {
namespace {

void require_steps(const char* scheduler, const char* what, std::int64_t steps) {
  require<ShapeError>(steps >= 1, scheduler, ": expected ", what, " >= 1, got ", steps);
}

void require_gamma(const char* scheduler, double gamma) {
  require<ShapeError>(std::isfinite(gamma) && gamma > 0, scheduler, ": expected gamma > 0, got ", gamma);
}

}  // namespace

void Scheduler::apply() { go_to(steps_); }

void Scheduler::go_to(std::int64_t step) {
  for (std::size_t i = 0; i < optimizer_->group_count(); ++i) {
    optimizer_->set_learning_rate(learning_rate(optimizer_->initial_learning_rate(i), step), i);
  }
  steps_ = step;
}

void Scheduler::step() { go_to(steps_ + 1); }

OptimizerState Scheduler::state() const {
  OptimizerState state;
  state.numbers.emplace_back("steps", static_cast<double>(steps_));
  return state;
}

void Scheduler::load_state(const OptimizerState& state) {
  const StateReader reader("Scheduler", state);
  const std::int64_t steps = reader.count("steps");
  reader.expect_size(0, 1);
  go_to(steps);
}

StepLR::StepLR(Optimizer& optimizer, const Options& options) : Scheduler(optimizer), options_(options) {
  require_steps("StepLR", "step_size", options.step_size);
  require_gamma("StepLR", options.gamma);
  apply();
}

double StepLR::learning_rate(double initial, std::int64_t step) const {
  return initial * std::pow(options_.gamma, static_cast<double>(step / options_.step_size));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, const Options& options) : Scheduler(optimizer), options_(options) {
  require_gamma("ExponentialLR", options.gamma);
  apply();
}

double ExponentialLR::learning_rate(double initial, std::int64_t step) const {
  return initial * std::pow(options_.gamma, static_cast<double>(step));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, const Options& options) : Scheduler(optimizer), options_(options) {
  require_steps("CosineAnnealingLR", "steps", options.steps);
  require<ShapeError>(std::isfinite(options.minimum) && options.minimum >= 0, "CosineAnnealingLR: expected minimum >= 0, got ",
                      options.minimum);
  apply();
}

double CosineAnnealingLR::learning_rate(double initial, std::int64_t step) const {
  const double done = static_cast<double>(std::min(step, options_.steps)) / static_cast<double>(options_.steps);
  return options_.minimum + (initial - options_.minimum) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

WarmupLR::WarmupLR(Optimizer& optimizer, const Options& options) : Scheduler(optimizer), options_(options) {
  require_steps("WarmupLR", "steps", options.steps);
  apply();
}

double WarmupLR::learning_rate(double initial, std::int64_t step) const {
  if (step < options_.steps) return initial * static_cast<double>(step + 1) / static_cast<double>(options_.steps);
  return then_ ? then_->learning_rate(initial, step - options_.steps) : initial;
}

}  // namespace polyphase
