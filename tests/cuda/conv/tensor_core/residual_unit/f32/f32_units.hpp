#pragma once
// The errors of residual units of f32.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "../unit_operands.hpp"
#include "ops/activations.hpp"

namespace polyphase::testing {

inline constexpr std::array kPrecisions{Precision::fp32, Precision::tf32};

/// What the steps may be wrong by, number by number: in tf32 with one rounding error of 2^-12 for each operand, in fp32 with
/// 2^-20 of each product (docs/precision.md).
inline Tensor largest_errors(const ResidualUnit& unit, const UnitOperands& operands) {
  const NoGradGuard no_grad;
  const double of_product = unit.precision == Precision::tf32 ? 0x1p-11 : 0x1p-20;
  const auto rounded = [](const Tensor& tensor) { return tensor.defined() ? tensor.to(DType::f32).to(DType::f64) : tensor; };
  const Tensor x = rounded(operands.x);
  const auto activated = [&](const Tensor& v, std::size_t i) {
    if (!unit.is_snake) return leaky_relu(v, unit.slope[i]);
    return snake_beta(v, rounded(operands.alphas[i]), rounded(operands.betas[i]));
  };
  const auto absolute = [](const Tensor& v) { return v.defined() ? leaky_relu(v, -1.0) : v; };
  const auto options = [&](std::size_t i) {
    return Conv1dOptions{.padding = unit.padding(i), .dilation = unit.D[i], .groups = unit.is_depthwise && i == 0 ? unit.C : 1};
  };
  const Tensor read = activated(x, 0), w0 = rounded(operands.weights[0]), b0 = rounded(operands.biases[0]);
  const Tensor middle = conv1d(read, w0, b0, options(0));
  const Tensor of_middle = conv1d(absolute(read), absolute(w0), absolute(b0), options(0)) * of_product;
  // The derivative of Snake: 1 + alpha/beta at most.
  double steepest = 1;
  if (unit.is_snake)
    for (std::size_t c = 0; c < static_cast<std::size_t>(unit.C); ++c)
      steepest = std::max(steepest, 1 + operands.alphas[1].to_vector<double>()[c] / operands.betas[1].to_vector<double>()[c]);
  const Tensor of_read = of_middle * steepest + absolute(activated(middle, 1)) * of_product;
  const Tensor w1 = absolute(rounded(operands.weights[1])), b1 = absolute(rounded(operands.biases[1]));
  return conv1d(of_read, w1, b1.defined() ? b1 * of_product : b1, options(1)) * 1.02 + absolute(x) * 0x1p-22;
}

/// The largest error in units of what is allowed.
inline double worst(const ResidualUnit& unit, const UnitOperands& operands) {
  const Tensor y = computed(unit, operands);
  REQUIRE(y.defined());
  const std::vector<double> got = f64_values(y), exact = f64_values(in_steps(unit, operands, DType::f64)),
                            allowed = f64_values(largest_errors(unit, operands));
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - exact[i]);
    if (!(error <= 0x1p-148)) most = std::max(most, std::isfinite(error) ? error / allowed[i] : 1e300);
  }
  return most;
}

/// x[n][c][l] = factor(n, c, l)*x[n][c][l].
inline void scale_source(UnitOperands& operands,
                         const std::function<double(std::int64_t, std::int64_t, std::int64_t)>& factor) {
  std::vector<double> x = operands.x.to_vector<double>();
  const std::int64_t C = operands.x.size(1), L = operands.x.size(2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    x[i] *= factor(at / L / C, at / L % C, at % L);
  }
  operands.x = Tensor::from_vector(x, operands.x.shape());
}

}  // namespace polyphase::testing
