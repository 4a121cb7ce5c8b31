#pragma once
// Stochastic gradient descent.

#include "../optim/optimizer.hpp"

namespace polyphase {

struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  ///< L2 penalty, added to the gradient
  bool nesterov = false;    ///< requires momentum > 0 and dampening 0
};

/// PyTorch's SGD: g += weight_decay*w; v = momentum*v + (1 - dampening)*g (v = g the first time);
/// w -= learning_rate * (v, or g + momentum*v with nesterov, or g without momentum).
class SGD : public Optimizer {
 public:
  /// Throws ShapeError naming a setting that is out of range.
  explicit SGD(std::vector<Tensor> parameters, const SgdOptions& options = {});
  explicit SGD(std::vector<ParameterGroup> groups, const SgdOptions& options = {});

 protected:
  void update(Backend& backend, std::span<const OptimizerSlot> slots, const Group& group, const StepControl& control) override;

 private:
  SgdOptions options_;
};

}  // namespace polyphase
