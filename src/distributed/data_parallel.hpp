#pragma once
// Training of one network by all ranks, each on its part of the batch.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "../distributed/group.hpp"
#include "../layers/module.hpp"

namespace polyphase::distributed {

struct DataParallelOptions {
  /// Bytes of the first bucket, which is full early, and of the others.
  std::int64_t first_bucket_bytes = 1 << 20;
  std::int64_t bucket_bytes = 25 << 20;
  /// Compares a hash of all parameters every so many steps; 0: never. On a GPU each comparison waits for the device.
  std::int64_t check_every = 100;
  /// Ends all ranks if a rank's gradient is infinite or NaN, naming rank and parameter. None: on the CPU only (it waits).
  std::optional<bool> check_finite{};
  /// Sums micro-batches in a fixed order, so that 1, 2, 4, ... ranks get the same bits: the number of micro-batches of a step
  /// over all ranks, a power of two that world divides. Rank r computes those from r*n to (r + 1)*n, n = micro_batches/world,
  /// each with its own backward(). 0: off.
  std::int64_t micro_batches = 0;
  /// For a ShardedOptimizer: a rank receives only its share of the averages, and grad() is undefined elsewhere.
  bool shard_gradients = false;
  /// Settings that must be the same on all ranks, compared as text in the constructor: batch size, learning rate, ...
  std::string settings{};
};

/// Averages the gradients of `module`'s parameters over the ranks during backward(), in buckets that are sent as soon as they
/// are full: in the reverse order of the parameters, which is fixed, so that every run has the same bits. Gradients are views
/// into the buckets. When backward() returns they are averages on all ranks, so clip_grad_norm and GradScaler agree without
/// more.
///
/// The constructor broadcasts rank 0's parameters and buffers, and throws DistributedError if names, shapes, dtypes, options or
/// settings differ. Make it after Module::to and weight_norm, and before the optimizer has state. With one rank (and no
/// micro_batches) it does nothing at all: no hook, no bucket.
class DataParallel {
 public:
  DataParallel(Group group, Module& module, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;

  /// Gradient accumulation: until the end of the scope, backward() adds to the gradients of this rank and sends nothing. The
  /// next backward() outside sends the sums.
  class NoSync {
   public:
    explicit NoSync(DataParallel& parallel);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& parallel_;
    bool previous_;
  };

  /// Compares the parameters' bits on all ranks now. Throws DistributedError naming the rank that has diverged.
  void check_parameters();
  /// Sends rank 0's parameters and buffers to all ranks, as the constructor does: after load_state_dict on rank 0 only.
  void broadcast_state();
  [[nodiscard]] std::size_t bucket_count() const;

  struct State;  // not for users
  [[nodiscard]] State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace polyphase::distributed
