#pragma once
// The optimizer functions of a device. Not for users.

#include <array>
#include <cstdint>
#include <span>

#include "tensor/tensor.hpp"

namespace polyphase {

/// One parameter's tensors in an optimizer step; all contiguous, of one shape and device. `momentum`/`second` may be undefined.
struct OptimizerSlot {
  Tensor parameter;
  Tensor grad;
  Tensor momentum;         ///< SGD: velocity; Adam: first moment
  Tensor second;           ///< Adam: second moment
  std::int64_t index = 0;  ///< of its count in StepControl::counts
};
/// The values that change from step to step. They are in the memory of the parameters' device, so that a step recorded in a
/// graph uses the values at replay, and the host never waits for them.
struct StepControl {
  Tensor learning_rate;     ///< () f64
  Tensor counts;            ///< (n) i64, contiguous: step counts of each slot's parameter; the step first adds one to each
  Tensor skip;              ///< () f64, may be undefined; if it is not 0, nothing is written and nothing is counted
  std::int64_t total = -1;  ///< another element of `counts` to which the step adds one; -1: none
};
struct SgdStep {
  double momentum, dampening, weight_decay;
  bool nesterov;
};
struct AdamStep {
  double beta1, beta2, epsilon, weight_decay;
  bool decoupled;  ///< AdamW: decay the weight, not the gradient
};
/// The decay of a moving average after n updates: `decay`, or with `ramp` at most (1 + n)/(10 + n).
struct AverageStep {
  double decay;
  bool ramp;
};
/// The rule of a loss scale: times `growth` after `interval` good steps in a row, times `backoff` after a bad one.
struct LossScaleStep {
  double growth, backoff;
  std::int64_t interval;
};
/// Indices in the state (3) f64 of a loss scale; growth_tracker counts good steps in a row.
enum class LossScaleField : std::uint8_t { scale, growth_tracker, skipped };

/// A device's operations on all parameters, gradients or averages.
class OptimizerBackend {
 public:
  virtual ~OptimizerBackend() = default;

  // ---- optimizers: one call a step, whatever the number of parameters; nothing waits ----------------------------------
  virtual void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control) = 0;
  virtual void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control) = 0;

  // ---- lists of contiguous floating-point tensors, dtypes mixed; f16 and bf16 are computed in f32; nothing waits ----------
  /// norm () f64 = sqrt(sum of the squares of all elements), summed in f64 in an order fixed by the sizes. Then all elements *=
  /// max_norm/(norm + 1e-6), unless that is 1 or more, or `finite_only` and the norm is not finite.
  virtual void clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm) = 0;
  /// found () f64 = 1 if an element is infinite or NaN, else unchanged; all elements *= 1/scale; scale () f64.
  virtual void unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found) = 0;
  /// averages[i] += (1 - decay)*(values[i] - averages[i]), pairs of one shape and dtype; `updates` () i64 is the n of `step`
  /// and is incremented.
  virtual void average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step,
                       const Tensor& updates) = 0;
  /// out[i] = in[i], pairs of one size that do not overlap, of one dtype or from f32 to f16 or bf16.
  virtual void copy_list(std::span<const Tensor> out, std::span<const Tensor> in) = 0;
  /// Updates `state` (LossScaleField) after a step, a bad one if any of `found` () f64 is not 0. A scale that f32 cannot
  /// represent is not adopted. Then sets every `found` to 0. At most kMaxFound of them.
  virtual void update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step) = 0;
  static constexpr std::size_t kMaxFound = 64;
};

}  // namespace polyphase
