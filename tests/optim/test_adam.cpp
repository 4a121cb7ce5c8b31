#include "optim/adam.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "support/quadratic.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;

namespace {

// PyTorch's Adam and AdamW, one element at a time.
template <class Optimizer, class Options>
void check(const Options& options, bool decoupled) {
  testing::Quadratic problem;
  Optimizer optimizer({problem.parameter}, options);
  std::vector<double> m(3);
  std::vector<double> v(3);
  const auto [beta1, beta2] = options.betas;
  for (int step = 1; step <= 30; ++step) {
    optimizer.zero_grad();
    problem.loss().backward();
    optimizer.step();
    for (std::size_t i = 0; i < 3; ++i) {
      double g = problem.gradient(i);
      if (decoupled) {
        problem.w[i] *= 1 - options.learning_rate * options.weight_decay;
      } else {
        g += options.weight_decay * problem.w[i];
      }
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double denominator = std::sqrt(v[i]) / std::sqrt(1 - std::pow(beta2, step)) + options.epsilon;
      problem.w[i] -= options.learning_rate / (1 - std::pow(beta1, step)) * m[i] / denominator;
    }
  }
  CHECK(allclose(problem.parameter, Tensor::from_vector(problem.w), testing::kDoubleSum, testing::kDoubleSum));
}

}  // namespace

TEST_CASE("adam: thirty steps on a quadratic equal PyTorch's formulas") {
  check<Adam>(AdamOptions{}, false);
  check<Adam>(AdamOptions{.learning_rate = 0.1, .betas = {0.8, 0.99}, .epsilon = 1e-3}, false);
  check<Adam>(AdamOptions{.learning_rate = 0.05, .weight_decay = 0.1}, false);
}

TEST_CASE("adamw: thirty steps on a quadratic equal PyTorch's formulas, decay 0.01 by default") {
  CHECK(AdamWOptions{}.weight_decay == 0.01);
  check<AdamW>(AdamWOptions{.learning_rate = 0.05}, true);
  check<AdamW>(AdamWOptions{.learning_rate = 0.05, .betas = {0.5, 0.9}, .weight_decay = 0.2}, true);
}

TEST_CASE("adam: settings out of range are refused in words") {
  const testing::Quadratic problem;
  const auto make = [&](const AdamOptions& options) { Adam({problem.parameter}, options); };
  CHECK_THROWS_WITH_AS(make({.learning_rate = NAN}), "Adam: expected learning_rate >= 0, got nan", ShapeError);
  CHECK_THROWS_WITH_AS(make({.betas = {1.0, 0.9}}), "Adam: expected betas in [0, 1), got 1 and 0.9", ShapeError);
  CHECK_THROWS_WITH_AS(make({.betas = {0.9, -0.1}}), "Adam: expected betas in [0, 1), got 0.9 and -0.1", ShapeError);
  CHECK_THROWS_WITH_AS(make({.epsilon = -1}), "Adam: expected epsilon >= 0, got -1", ShapeError);
  CHECK_THROWS_WITH_AS(make({.weight_decay = -1}), "Adam: expected weight_decay >= 0, got -1", ShapeError);
  CHECK_THROWS_WITH_AS(AdamW({problem.parameter}, {.weight_decay = -1}), "AdamW: expected weight_decay >= 0, got -1",
                       ShapeError);
}
