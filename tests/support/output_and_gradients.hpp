#pragma once
// What a function of tensors gives, to compare two ways to compute it bit for bit.

#include <vector>

#include "support/helpers.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::testing {

inline std::vector<double> values(const Tensor& tensor) { return tensor.detach().to(DType::f64).to_vector<double>(); }

/// The output and the gradients of all leaves that have one.
template <class Forward>
std::vector<std::vector<double>> output_and_gradients(const std::vector<Tensor>& leaves, const Forward& forward) {
  for (const Tensor& leaf : leaves) leaf.set_grad({});
  const Tensor y = forward();
  const Tensor gradient = random_f64(y.shape(), 9).to(y.dtype());
  y.backward(gradient);
  std::vector<std::vector<double>> all{values(y)};
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad().defined() ? values(leaf.grad()) : std::vector<double>());
  return all;
}

}  // namespace polyphase::testing
