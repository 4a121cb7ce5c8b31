#pragma once
// A training run: generator, discriminators, optimizers and averaged weights, and how they are saved together.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/cuda.hpp"
#include "distributed/data_parallel.hpp"
#include "io/checkpoint.hpp"
#include "networks/gan/training.hpp"
#include "optim/ema.hpp"
#include "settings.hpp"
#include "shared.hpp"
#include "training/finite.hpp"

namespace vocoder {

class Trainer {
 public:
  /// A new run; weights from settings.seed. `settings` as complete() gives them. On the default device. Throws Error.
  explicit Trainer(const TrainSettings& settings);
  /// The run as a checkpoint left it. Throws Error where it is not one of this program's.
  explicit Trainer(const pp::Checkpoint& checkpoint);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Starts from published weights: generator, discriminators and, where the file has them, optimizers; an empty path is none.
  /// Before the first step. Throws FormatError.
  void load_published(const std::string& generator, const std::string& discriminators);
  /// From here on all processes of the group take steps together, each on its rows of the batch, and start from the first one's
  /// weights. The run must have been made or resumed by all of them. Throws DistributedError where their settings differ.
  void distribute(const pp::distributed::Group& group);
  /// From the fourth step on, a step is recorded once and replayed (cuda::capture): the same bits, less work on the host. All
  /// of their audio must have one shape. Throws Error unless the networks are on a GPU.
  void record_steps();
  /// How many steps make an epoch, which HiFi-GAN's learning rates decay by: as many segments as there are clips.
  void set_steps_per_epoch(std::int64_t steps) { steps_per_epoch_ = steps; }

  /// One update of all networks; `audio` (N, 1, segment). Throws Diverged, behind the updates, where a number is not finite.
  pp::GanNumbers step(const pp::Tensor& audio);
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_total_steps(std::int64_t steps) { settings_.steps = steps; }

  [[nodiscard]] pp::GanTraining& gan() { return *gan_; }
  [[nodiscard]] const TrainSettings& settings() const { return settings_; }

  /// All that the run is: Trainer(checkpoint()) goes on bit by bit. Throws Diverged where a weight is not finite.
  [[nodiscard]] pp::Checkpoint checkpoint();
  /// Calls `use` while the generator has its averaged weights, if there are any, and is in evaluation.
  template <class Use>
  auto with_average(Use&& use) {
    struct Restore {
      Trainer& trainer;
      ~Restore() {
        trainer.generator_->train();
        if (trainer.average_) trainer.average_->restore();
      }
    };
    if (average_) average_->apply();
    generator_->eval();
    const Restore restore{*this};
    return use();
  }
  /// Writes the generator, averaged where there are averages, under the original's names and with its configuration: for
  /// load_model(), `polyphase run` and the original code. Throws FormatError.
  void save_generator(const std::string& path);

 private:
  [[nodiscard]] pp::NamedTensors model_state();
  void decay();
  /// All of a step that runs on the device alone.
  [[nodiscard]] pp::GanStep compute(const pp::Tensor& audio);
  [[nodiscard]] pp::GanStep replay(const pp::Tensor& audio);

  TrainSettings settings_;
  std::unique_ptr<pp::Network> generator_;
  std::optional<pp::GanTraining> gan_;
  std::optional<pp::ExponentialMovingAverage> average_;
  std::optional<pp::distributed::Group> group_;
  std::vector<pp::distributed::DataParallel> parallel_;
  std::int64_t steps_ = 0;
  std::int64_t steps_per_epoch_ = 1;
  // The recorded step, which is destroyed before the group is left.
  bool records_ = false;
  std::int64_t eager_steps_ = 0;
  pp::Tensor audio_;
  std::optional<pp::GanStep> recorded_;
  std::optional<pp::cuda::Graph> graph_;
};

}  // namespace vocoder
