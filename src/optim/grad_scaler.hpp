#pragma once
// Loss scaling, for training in f16 (Micikevicius et al., arXiv 1710.03740): PyTorch's torch.amp.GradScaler.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "../optim/optimizer.hpp"

namespace polyphase {

struct GradScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2;     ///< factor of the scale after `growth_interval` good steps in a row
  double backoff_factor = 0.5;  ///< factor of the scale after a step with an infinite or NaN gradient
  std::int64_t growth_interval = 2000;
  /// Called after each unscale() with the flag, () f64 on the device, that is not 0 if a gradient is not finite; may add to it.
  /// ShardedOptimizer::agree() sums it over the ranks of a job. Empty: none.
  std::function<void(const Tensor& found)> agree{};
  bool enabled = true;  ///< false: scale() returns the loss, step() is the optimizer's step, everything else does nothing
};

/// Scales a loss so that small gradients stay within f16's range, and skips steps whose gradients overflowed:
///
///   pp::GradScaler scaler;
///   for (...) {
///     pp::Tensor loss;
///     { pp::AutocastGuard autocast(pp::DType::f16); loss = pp::mse_loss(net(x), y); }
///     optimizer.zero_grad();
///     scaler.scale(loss).backward();
///     scaler.unscale(optimizer);                          // only to look at the gradients, or to clip them
///     pp::clip_grad_norm(net.parameters(), 1);
///     scaler.step(optimizer);
///     scaler.update();
///   }
///
/// The scale, the counts and the overflow flag stay on the device, where the optimizer's kernels read them. Only the functions
/// that say so wait, and everything may be recorded by cuda::capture after one eager step. A skipped step changes neither
/// parameters nor the optimizer's moments and step counts.
class GradScaler {
 public:
  /// Throws ShapeError unless initial_scale > 0, growth_factor > 1, 0 < backoff_factor < 1 and growth_interval >= 1.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// loss * scale, differentiable. The device of the first loss becomes that of the scaler's state.
  [[nodiscard]] Tensor scale(const Tensor& loss);
  /// Divides the gradients of the optimizer's parameters by the scale, in place, and records whether one is not finite. step()
  /// does this if it was not done. Throws Error if called twice between updates, after step(), before scale() or without any
  /// gradient; DTypeError for gradients of f16, which would underflow; DeviceError unless all are on the loss's device.
  void unscale(Optimizer& optimizer);
  /// The optimizer's step, skipped if a gradient is not finite. Throws like unscale().
  void step(Optimizer& optimizer);
  /// Updates the scale after all optimizers have stepped: it grows after good steps and backs off after a bad one. A scale that
  /// f32 cannot represent is not adopted. Destroyed optimizers are forgotten. Throws Error if nothing was unscaled since the
  /// last update.
  void update();

  [[nodiscard]] bool enabled() const { return options_.enabled; }
  /// The current scale; 1 if not enabled. Waits for the device, like the next two functions.
  [[nodiscard]] double scale() const;
  /// Good steps since the scale last changed.
  [[nodiscard]] std::int64_t growth_tracker() const;
  /// Number of skipped steps.
  [[nodiscard]] std::int64_t skipped() const;

  /// Numbers "scale", "growth_tracker", "skipped". Waits for the device.
  [[nodiscard]] OptimizerState state() const;
  /// Restores the result of state(). Throws Error naming the entry that does not fit; then nothing has changed.
  void load_state(const OptimizerState& state);

 private:
  enum class Stage : unsigned char { ready, unscaled, stepped };
  struct Entry {
    std::weak_ptr<const void> optimizer;
    Tensor found;  // () f64: not 0 if a gradient was not finite
    Stage stage = Stage::ready;
  };
  /// In the order of the backend's LossScaleField.
  [[nodiscard]] std::vector<double> values() const;
  void make_state(Device device);
  Entry& entry_of(const Optimizer& optimizer);
  void unscale(Optimizer& optimizer, const char* operation);

  GradScalerOptions options_;
  std::vector<double> start_;  // the values, before the device is known
  Tensor state_;               // (3) f64, once the device is known
  std::vector<Entry> entries_;
};

}  // namespace polyphase
