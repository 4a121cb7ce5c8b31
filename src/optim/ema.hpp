#pragma once
// A moving average of the weights, often better than the last ones.

#include "../optim/optimizer.hpp"

namespace polyphase {

struct EmaOptions {
  double decay = 0.999;
  bool ramp = false;  ///< use min(decay, (1 + updates)/(10 + updates)), which discounts the first weights quickly
};

/// average = average + (1 - decay)*(weight - average) after every update(), starting from the current weights. Averages
/// parameters only, not a module's buffers.
class ExponentialMovingAverage {
 public:
  /// Throws ShapeError unless decay is in [0, 1) and there is a parameter.
  explicit ExponentialMovingAverage(std::vector<Tensor> parameters, const EmaOptions& options = {});

  /// Adds the weights to the average; call it after Optimizer::step. Does not wait for the device; may be recorded by
  /// cuda::capture, and replays keep counting. Throws Error while the averages are applied.
  void update();
  /// Exchanges weights and averages, in place, to evaluate or save the averaged network. Throws Error if applied already.
  void apply();
  /// Exchanges them back. Throws Error unless applied.
  void restore();
  [[nodiscard]] bool is_applied() const { return applied_; }
  /// Number of calls of update(). It is counted on the device: waits for it.
  [[nodiscard]] std::int64_t updates() const;

  /// "updates" and the averages "0.average", "1.average", ... Throws Error while applied.
  [[nodiscard]] OptimizerState state() const;
  /// Restores the result of state(). Throws Error naming the entry that does not fit, or while applied; then nothing has
  /// changed.
  void load_state(const OptimizerState& state);

 private:
  void exchange();

  /// The parameters of one device. Recorded updates hold the tensors' addresses, so they are only written in place.
  struct Part {
    Device device;
    Tensor updates;                      // () i64
    std::vector<std::size_t> members{};  // positions
  };
  std::vector<Tensor> parameters_;
  std::vector<Tensor> averages_;
  std::vector<Part> parts_;  // nearly always one
  EmaOptions options_;
  bool applied_ = false;
};

}  // namespace polyphase
