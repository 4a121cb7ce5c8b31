#pragma once
// A small problem for optimizers with a known gradient: loss = sum of a*(w - c)^2/2.

#include <vector>

#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::testing {

/// A parameter of three elements and its copy in plain doubles, to be updated by the formula under test.
struct Quadratic {
  std::vector<double> a{1, 3, 0.5};
  std::vector<double> c{2, -1, 0};
  std::vector<double> w{0, 1, -4};
  Tensor parameter = Tensor::from_vector(w).set_requires_grad(true);

  [[nodiscard]] Tensor loss() const { return sum(Tensor::from_vector(a) * square(parameter - Tensor::from_vector(c))) * 0.5; }
  /// d(loss)/d(w[i]) at the plain copy.
  [[nodiscard]] double gradient(std::size_t i) const { return a[i] * (w[i] - c[i]); }
};

}  // namespace polyphase::testing
