#include "distributed/data_parallel_tree.hpp"

#include <utility>

#include "autograd/no_grad.hpp"

namespace polyphase::distributed {

void MicroBatchTree::add(const Tensor& gradient) {
  const NoGradGuard no_grad;
  Tensor copy;
  if (spare_.empty()) {
    copy = Tensor::empty_like(gradient);
  } else {
    copy = std::move(spare_.back());
    spare_.pop_back();
  }
  copy.copy_(gradient);
  sums_.push_back({0, std::move(copy)});
  ++count_;
  while (sums_.size() > 1 && sums_[sums_.size() - 2].level == sums_.back().level) {
    Sum later = std::move(sums_.back());
    sums_.pop_back();
    sums_.back().tensor += later.tensor;
    ++sums_.back().level;
    spare_.push_back(std::move(later.tensor));
  }
}

Tensor MicroBatchTree::take() {
  Tensor sum = sums_.front().tensor;
  spare_.push_back(sum);
  sums_.clear();
  count_ = 0;
  return sum;
}

void add_rows_as_tree(const Tensor& rows) {
  const NoGradGuard no_grad;
  for (std::int64_t stride = 1; stride < rows.size(0); stride *= 2) {
    for (std::int64_t row = 0; row < rows.size(0); row += 2 * stride) {
      Tensor left = rows.select(0, row);
      left += rows.select(0, row + stride);
    }
  }
}

}  // namespace polyphase::distributed
