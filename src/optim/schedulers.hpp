#pragma once
// Learning-rate schedules: the rate of every parameter group as a function of the initial rate and the number of steps.

#include <concepts>
#include <memory>
#include <utility>

#include "../optim/optimizer.hpp"

namespace polyphase {

/// Sets an optimizer's learning rates. Rates depend on the step number alone, not on the previous rate, so that resuming is
/// exact. Keeps a pointer: the optimizer must outlive it.
///
///   pp::WarmupLR schedule(optimizer, {.steps = 100}, pp::CosineAnnealingLR(optimizer, {.steps = 5000}));
///   for (...) { ...; optimizer.step(); schedule.step(); }
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// The rate after `step` calls of step(), for a group with the initial rate `initial`.
  [[nodiscard]] virtual double learning_rate(double initial, std::int64_t step) const = 0;

  /// Counts one step and sets every group's rate. Call it after Optimizer::step, or after the replay of a recorded one, but not
  /// inside cuda::capture, where Optimizer::set_learning_rate throws. A step that throws is not counted.
  void step();
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// One number, "steps".
  [[nodiscard]] OptimizerState state() const;
  /// Continues from the result of state() and sets every group's rate. Throws Error if the state is not a scheduler's.
  void load_state(const OptimizerState& state);

 protected:
  explicit Scheduler(Optimizer& optimizer) : optimizer_(&optimizer) {}
  /// Sets every group's rate; for constructors of derived classes, once learning_rate() can be called.
  void apply();

 private:
  void go_to(std::int64_t step);

  Optimizer* optimizer_;
  std::int64_t steps_ = 0;
};

/// initial * gamma^floor(step/step_size).
class StepLR : public Scheduler {
 public:
  struct Options {
    std::int64_t step_size = 0;  ///< required
    double gamma = 0.1;
  };
  /// Throws ShapeError unless step_size >= 1 and gamma > 0.
  StepLR(Optimizer& optimizer, const Options& options);
  [[nodiscard]] double learning_rate(double initial, std::int64_t step) const override;

 private:
  Options options_;
};

/// initial * gamma^step.
class ExponentialLR : public Scheduler {
 public:
  struct Options {
    double gamma = 0;  ///< required
  };
  /// Throws ShapeError unless gamma > 0.
  ExponentialLR(Optimizer& optimizer, const Options& options);
  [[nodiscard]] double learning_rate(double initial, std::int64_t step) const override;

 private:
  Options options_;
};

/// minimum + (initial - minimum)*(1 + cos(pi*step/steps))/2 (Loshchilov and Hutter, arXiv 1608.03983); stays at the minimum
/// after `steps`, while PyTorch's rises again.
class CosineAnnealingLR : public Scheduler {
 public:
  struct Options {
    std::int64_t steps = 0;  ///< PyTorch's T_max, required
    double minimum = 0;      ///< PyTorch's eta_min
  };
  /// Throws ShapeError unless steps >= 1 and minimum >= 0.
  CosineAnnealingLR(Optimizer& optimizer, const Options& options);
  [[nodiscard]] double learning_rate(double initial, std::int64_t step) const override;

 private:
  Options options_;
};

/// initial * (step + 1)/steps for the first `steps` steps; then the initial rate, or another schedule from its start.
class WarmupLR : public Scheduler {
 public:
  struct Options {
    std::int64_t steps = 0;  ///< required
  };
  /// Throws ShapeError unless steps >= 1.
  WarmupLR(Optimizer& optimizer, const Options& options);
  template <std::derived_from<Scheduler> S>
  WarmupLR(Optimizer& optimizer, const Options& options, S then) : WarmupLR(optimizer, options) {
    then_ = std::make_shared<const S>(std::move(then));
    apply();
  }
  [[nodiscard]] double learning_rate(double initial, std::int64_t step) const override;

 private:
  Options options_;
  std::shared_ptr<const Scheduler> then_;
};

}  // namespace polyphase
