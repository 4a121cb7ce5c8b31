#pragma once
// Adam (Kingma and Ba, arXiv 1412.6980) and AdamW (Loshchilov and Hutter, arXiv 1711.05101).

#include "../optim/optimizer.hpp"

namespace polyphase {

/// PyTorch's beta pair: `.betas = {0.8, 0.99}`.
struct AdamBetas {
  double first = 0.9;
  double second = 0.999;
};

struct AdamOptions {
  double learning_rate = 1e-3;
  AdamBetas betas{};
  double epsilon = 1e-8;
  double weight_decay = 0;  ///< L2 penalty, added to the gradient
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  AdamBetas betas{};
  double epsilon = 1e-8;
  double weight_decay = 1e-2;  ///< w *= 1 - learning_rate*weight_decay before the update
};

/// m = beta1*m + (1 - beta1)*g; v = beta2*v + (1 - beta2)*g^2;
/// w -= learning_rate/(1 - beta1^t) * m / (sqrt(v)/sqrt(1 - beta2^t) + epsilon), as PyTorch computes it.
class Adam : public Optimizer {
 public:
  /// Throws ShapeError naming a setting that is out of range.
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});
  explicit Adam(std::vector<ParameterGroup> groups, const AdamOptions& options = {});

 protected:
  Adam(const char* name, std::vector<ParameterGroup> groups, const AdamOptions& options, bool decoupled);
  void update(Backend& backend, std::span<const OptimizerSlot> slots, const Group& group, const StepControl& control) override;

 private:
  AdamOptions options_;
  bool decoupled_;
};

/// Adam with the weight decay subtracted from the weight itself instead of added to the gradient.
class AdamW : public Adam {
 public:
  /// Throws ShapeError naming a setting that is out of range.
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});
};

}  // namespace polyphase
