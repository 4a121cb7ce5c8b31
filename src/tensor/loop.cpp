#include "tensor/loop.hpp"

#include <algorithm>
#include <utility>

namespace polyphase {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Insertion sort of the dimensions by operand 0's stride, largest first; a contiguous output is in order already.
void sort_dimensions(Loop& loop) {
  for (int i = 1; i < loop.rank; ++i)
    for (int d = i; d > 0 && loop.strides[0][at(d - 1)] < loop.strides[0][at(d)]; --d) {
      std::swap(loop.sizes[at(d - 1)], loop.sizes[at(d)]);
      for (int k = 0; k < loop.operands; ++k) std::swap(loop.strides[at(k)][at(d - 1)], loop.strides[at(k)][at(d)]);
    }
}

bool can_merge(const Loop& loop, int outer, int inner) {
  for (int k = 0; k < loop.operands; ++k)
    if (loop.strides[at(k)][at(outer)] != loop.strides[at(k)][at(inner)] * loop.sizes[at(inner)]) return false;
  return true;
}

void merge_dimensions(Loop& loop) {
  int last = 0;
  for (int d = 1; d < loop.rank; ++d) {
    if (can_merge(loop, last, d)) {
      loop.sizes[at(last)] *= loop.sizes[at(d)];
    } else {
      loop.sizes[at(++last)] = loop.sizes[at(d)];
    }
    for (int k = 0; k < loop.operands; ++k) loop.strides[at(k)][at(last)] = loop.strides[at(k)][at(d)];
  }
  loop.rank = last + 1;
}

}  // namespace

bool Loop::is_flat(int operand) const {
  std::int64_t expected = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (strides[at(operand)][at(d)] != expected) return false;
    expected *= sizes[at(d)];
  }
  return true;
}

bool Loop::is_constant(int operand) const {
  return std::all_of(strides[at(operand)].begin(), strides[at(operand)].begin() + rank, [](std::int64_t s) { return s == 0; });
}

Loop make_loop(const Tensor& out, std::span<const Tensor> inputs) {
  Loop loop;
  loop.operands = 1 + static_cast<int>(inputs.size());
  loop.count = out.numel();
  loop.rank = 0;
  for (int d = 0; d < out.rank(); ++d) {
    if (out.shape()[d] == 1) continue;
    loop.sizes[at(loop.rank)] = out.shape()[d];
    loop.strides[0][at(loop.rank)] = out.strides()[d];
    for (std::size_t k = 0; k < inputs.size(); ++k) loop.strides[k + 1][at(loop.rank)] = inputs[k].strides()[d];
    ++loop.rank;
  }
  if (loop.rank == 0) {  // one element: any strides are valid
    loop.sizes[0] = 1;
    for (int k = 0; k < loop.operands; ++k) loop.strides[at(k)][0] = 1;
    loop.rank = 1;
    return loop;
  }
  sort_dimensions(loop);
  merge_dimensions(loop);
  return loop;
}

}  // namespace polyphase
