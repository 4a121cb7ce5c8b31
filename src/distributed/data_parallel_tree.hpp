#pragma once
// Sums in the order of a fixed binary tree over micro-batches. Internal.

#include <cstdint>
#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase::distributed {

/// Adds the gradients of micro-batches 0, 1, 2, ... as the leaves of a complete binary tree: (g0 + g1) + (g2 + g3). Keeps one
/// sum for each level, so log2(n) + 1 tensors.
class MicroBatchTree {
 public:
  /// Adds a copy of the next micro-batch's gradient.
  void add(const Tensor& gradient);
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// The sum of all; their number is a power of two. Begins a new tree.
  [[nodiscard]] Tensor take();

 private:
  struct Sum {
    int level;
    Tensor tensor;
  };
  std::vector<Sum> sums_;      // of falling levels
  std::vector<Tensor> spare_;  // memory of sums that were added to others
  std::int64_t count_ = 0;
};

/// rows (world, n), world a power of two: row 0 becomes the sum of all, as the tree's upper levels add them.
void add_rows_as_tree(const Tensor& rows);

}  // namespace polyphase::distributed
