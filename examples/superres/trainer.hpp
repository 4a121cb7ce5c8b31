#pragma once
// A training run: network, optimizer, schedule and averaged weights, and their checkpoint.

#include <cstdint>
#include <optional>
#include <string>

#include "io/checkpoint.hpp"
#include "model.hpp"
#include "optim/adam.hpp"
#include "optim/ema.hpp"
#include "optim/schedulers.hpp"
#include "settings.hpp"
#include "shared.hpp"
#include "training/finite.hpp"
#include "training/loader.hpp"

namespace superres {

/// The results of a step.
struct StepResult {
  double loss = 0;
  double snr = 0;            ///< of the batch, in dB; not finite if the batch is silent or has no error
  double gradient_norm = 0;  ///< before clipping
};

/// The loss of outputs (N, 1, L) against targets. It is the mean over windows of the log of the error's energy plus weight *
/// distance of log spectra. The first term is the negative SNR up to a constant, so that loud and soft windows count equally.
[[nodiscard]] pp::Tensor training_loss(const pp::Tensor& output, const pp::Tensor& target, double spectral_weight);

class Trainer {
 public:
  /// A new run with weights from settings.seed. Throws like validate().
  Trainer(const ModelOptions& model, const TrainSettings& settings);
  /// The run of a checkpoint. Throws Error if it is not one of this program's, or its settings are out of range.
  explicit Trainer(const pp::Checkpoint& checkpoint);

  /// One update. Throws Diverged if loss or gradients are not finite; then nothing is updated.
  StepResult step(const TensorBatch& batch);
  StepResult step(const Batch& batch) { return step(tensors_of(batch, pp::default_device())); }
  [[nodiscard]] std::int64_t steps() const { return schedule_->steps(); }
  [[nodiscard]] double learning_rate() const { return optimizer_.learning_rate(); }
  /// Changes the length of the run, and thereby the rest of the schedule.
  void set_total_steps(std::int64_t steps);

  [[nodiscard]] UpsamplingNetwork& network() { return network_; }
  [[nodiscard]] const TrainSettings& settings() const { return settings_; }
  /// The windows of this run.
  [[nodiscard]] LoaderOptions loader_options() const;

  /// The complete state: Trainer(checkpoint()) continues bit by bit. Throws Diverged if a weight is not finite, as a step may
  /// leave it, so that such weights never replace good ones.
  [[nodiscard]] pp::Checkpoint checkpoint();
  /// The averaged network alone, for use. Throws like checkpoint().
  [[nodiscard]] pp::Checkpoint averaged();
  /// Calls `use` while the network has its averaged weights.
  template <class Use>
  auto with_average(Use&& use) {
    struct Restore {
      pp::ExponentialMovingAverage& average;
      ~Restore() { average.restore(); }
    };
    average_.apply();
    const Restore restore{average_};
    return use();
  }

 private:
  void make_schedule();

  ModelOptions options_;
  TrainSettings settings_;
  UpsamplingNetwork network_;
  pp::Adam optimizer_;
  pp::ExponentialMovingAverage average_;
  std::optional<pp::WarmupLR> schedule_;
};

/// The network of a checkpoint, averaged weights where it has them, ready for use. Throws as load_finite_checkpoint, and Error.
[[nodiscard]] UpsamplingNetwork load_network(const std::string& path);

}  // namespace superres
