#pragma once
// What a DataParallel owns. Internal.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "distributed/data_parallel.hpp"
#include "distributed/data_parallel_buckets.hpp"
#include "distributed/data_parallel_tree.hpp"

namespace polyphase::distributed {

/// With one rank and no micro-batches there are parameters, but no buckets and no observed leaf.
struct DataParallel::State : autograd::LeafObserver {
  State(const Group& joined, Module& trained, const DataParallelOptions& given);
  ~State() override;

  Tensor finish_leaf(std::size_t number, const Tensor& before, const Tensor& gradient) override;
  void end_pass() override;

  Group group;
  DataParallelOptions options;
  bool checks_finite = false;
  bool syncs = true;
  NamedTensors all_state;          // parameters and buffers, off the tape
  std::vector<std::string> names;  // of the parameters that are trained
  std::vector<Tensor> parameters;
  std::vector<Bucket> buckets;
  std::vector<BucketPlace> places;  // by parameter
  std::shared_ptr<void> check;      // of the parameters, every few steps

 private:
  /// Writes gradients that were only kept into the bucket, all in one call of the device.
  void fill(std::size_t bucket);
  void send(std::size_t bucket);
  void send_full_buckets();
  void fill_missing(std::size_t bucket);
  void require_finite(std::size_t bucket);
  void add_micro_batch();
  void sum_over_ranks(std::size_t bucket);
  [[nodiscard]] bool uses_tree() const { return options.micro_batches > 0; }

  std::vector<std::vector<bool>> arrived_;  // by bucket and slot, in the pass
  std::vector<std::size_t> missing_;        // by bucket
  struct Kept {
    std::vector<Tensor> views, gradients;
  };
  std::vector<Kept> kept_;  // by bucket
  std::size_t next_ = 0;    // the bucket to be sent next
  std::vector<Pending> pending_;
  std::vector<MicroBatchTree> trees_;  // by bucket
};

}  // namespace polyphase::distributed
