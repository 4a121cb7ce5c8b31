#pragma once
// An optimizer whose state and work are divided among the ranks (Rajbhandari et al., arXiv 1910.02054: ZeRO, stage 1).

#include <functional>
#include <memory>
#include <vector>

#include "../distributed/data_parallel.hpp"
#include "../optim/optimizer.hpp"

namespace polyphase::distributed {

/// Every rank keeps the moments of its share of each bucket and updates that share:
///
///   pp::distributed::DataParallel parallel(group, net, {.shard_gradients = true});
///   pp::distributed::ShardedOptimizer optimizer(parallel, [](std::vector<pp::Tensor> shards) {
///     return std::make_unique<pp::AdamW>(std::move(shards), pp::AdamWOptions{.learning_rate = 2e-4});
///   });
///   ... loss.backward(); optimizer.clip_grad_norm(1); optimizer.step();
///
/// backward() leaves each rank the averages of its share (reduce-scatter), step() updates it and sends it to the others
/// (all-gather): the bytes of an all-reduce, and 1/world of the moments' memory. The bits of the weights are those of the
/// optimizer without shards: its functions treat every element alike. All parameters need a gradient in every step, and have
/// the settings of one group.
class ShardedOptimizer {
 public:
  using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor> shards)>;
  /// `make` makes the optimizer of this rank's shares, one parameter (n) for each bucket. Throws Error unless `parallel` has
  /// shard_gradients. `parallel` must outlive the object.
  ShardedOptimizer(DataParallel& parallel, const Make& make);

  /// Updates the parameters on all ranks and drops the gradients. Waits as Communicator does. `skip` as in Optimizer::step.
  /// Throws Error naming a parameter without gradient.
  void step(const Tensor& skip = {});
  /// clip_grad_norm over all ranks: returns the norm of the whole gradient, one f64 on the device, up to rounding.
  Tensor clip_grad_norm(double max_norm);
  /// Drops all gradients.
  void zero_grad();
  /// The optimizer of this rank's shares: for schedulers, and for GradScaler with agree().
  [[nodiscard]] Optimizer& local() { return *local_; }
  /// For GradScalerOptions::agree: all ranks skip a step if one has found an overflow.
  [[nodiscard]] std::function<void(const Tensor& found)> agree() const;

  /// What the optimizer without shards would return: it can be loaded with and without shards and by any number of ranks. All
  /// ranks must call it, and all get it whole.
  [[nodiscard]] OptimizerState state();
  /// Restores it, and takes the parameters as they are now. Throws Error naming the entry that does not fit; then nothing has
  /// changed.
  void load_state(const OptimizerState& state);

 private:
  [[nodiscard]] Tensor own_share(const Tensor& flat) const;
  void take_parameters();
  void give_parameters();
  [[nodiscard]] std::vector<Tensor> gradients() const;

  DataParallel& parallel_;
  std::vector<Tensor> shards_;  // this rank's share of each bucket's parameters
  std::unique_ptr<Optimizer> local_;
};

}  // namespace polyphase::distributed
