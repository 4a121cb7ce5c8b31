#include "optim/sgd.hpp"

#include <doctest/doctest.h>

#include "support/quadratic.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;

namespace {

// PyTorch's SGD, one element at a time.
void check(const SgdOptions& options) {
  testing::Quadratic problem;
  SGD optimizer({problem.parameter}, options);
  std::vector<double> velocity(3);
  for (int step = 1; step <= 20; ++step) {
    optimizer.zero_grad();
    problem.loss().backward();
    optimizer.step();
    for (std::size_t i = 0; i < 3; ++i) {
      double g = problem.gradient(i) + options.weight_decay * problem.w[i];
      if (options.momentum != 0) {
        velocity[i] = step == 1 ? g : options.momentum * velocity[i] + (1 - options.dampening) * g;
        g = options.nesterov ? g + options.momentum * velocity[i] : velocity[i];
      }
      problem.w[i] -= options.learning_rate * g;
    }
  }
  CHECK(allclose(problem.parameter, Tensor::from_vector(problem.w), testing::kDoubleSum, testing::kDoubleSum));
}

}  // namespace

TEST_CASE("sgd: twenty steps on a quadratic equal PyTorch's formulas") {
  check({.learning_rate = 0.1});
  check({.learning_rate = 0.1, .weight_decay = 0.05});
  check({.learning_rate = 0.05, .momentum = 0.9});
  check({.learning_rate = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01});
  check({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-4, .nesterov = true});
}

TEST_CASE("sgd: reaches the minimum") {
  testing::Quadratic problem;
  SGD optimizer({problem.parameter}, {.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
  for (int step = 0; step < 500; ++step) {
    optimizer.zero_grad();
    problem.loss().backward();
    optimizer.step();
  }
  CHECK(problem.loss().item() < testing::kDoubleSum);
}

TEST_CASE("sgd: settings out of range are refused in words") {
  const testing::Quadratic problem;
  const auto make = [&](const SgdOptions& options) { SGD({problem.parameter}, options); };
  CHECK_THROWS_WITH_AS(make({.learning_rate = -1}), "SGD: expected learning_rate >= 0, got -1", ShapeError);
  CHECK_THROWS_WITH_AS(make({.momentum = -0.5}), "SGD: expected momentum >= 0, got -0.5", ShapeError);
  CHECK_THROWS_WITH_AS(make({.weight_decay = -2}), "SGD: expected weight_decay >= 0, got -2", ShapeError);
  CHECK_THROWS_WITH_AS(make({.nesterov = true}),
                       "SGD: nesterov needs momentum > 0 and dampening 0, got momentum=0, dampening=0", ShapeError);
  CHECK_THROWS_WITH_AS(make({.momentum = 0.9, .dampening = 0.5, .nesterov = true}),
                       "SGD: nesterov needs momentum > 0 and dampening 0, got momentum=0.9, dampening=0.5", ShapeError);
}

TEST_CASE("sgd: by default the gradient alone, times a thousandth") {
  testing::Quadratic problem;
  SGD optimizer({problem.parameter});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    problem.loss().backward();
    optimizer.step();
    for (std::size_t i = 0; i < 3; ++i) problem.w[i] -= 1e-3 * problem.gradient(i);
  }
  CHECK(allclose(problem.parameter, Tensor::from_vector(problem.w), testing::kDoubleRounding, testing::kDoubleRounding));
}
