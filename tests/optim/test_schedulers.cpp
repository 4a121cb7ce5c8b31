#include "optim/schedulers.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "optim/sgd.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;

namespace {

SGD two_groups() {
  const auto leaf = [] { return Tensor::ones({1}, {.requires_grad = true}); };
  return SGD(std::vector<ParameterGroup>{{.parameters = {leaf()}}, {.parameters = {leaf()}, .learning_rate = 10}},
             {.learning_rate = 1});
}

// The rates of both groups after 0, 1, 2, ... steps; the second is a tenth of the first.
void check_sequence(SGD& optimizer, Scheduler& scheduler, const std::vector<double>& expected) {
  for (std::size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(step);
    CHECK(scheduler.steps() == static_cast<std::int64_t>(step));
    CHECK(optimizer.learning_rate(0) == doctest::Approx(expected[step]).epsilon(testing::kDoubleRounding));
    CHECK(optimizer.learning_rate(1) == doctest::Approx(10 * expected[step]).epsilon(testing::kDoubleRounding));
    scheduler.step();
  }
}

}  // namespace

TEST_CASE("schedulers: StepLR") {
  SGD optimizer = two_groups();
  StepLR scheduler(optimizer, {.step_size = 3, .gamma = 0.5});
  check_sequence(optimizer, scheduler, {1, 1, 1, 0.5, 0.5, 0.5, 0.25});
}

TEST_CASE("schedulers: ExponentialLR") {
  SGD optimizer = two_groups();
  ExponentialLR scheduler(optimizer, {.gamma = 0.9});
  check_sequence(optimizer, scheduler, {1, 0.9, 0.81, 0.729});
}

TEST_CASE("schedulers: CosineAnnealingLR falls to the minimum and stays there") {
  SGD optimizer = two_groups();
  CosineAnnealingLR scheduler(optimizer, {.steps = 4});
  const double half = std::sqrt(0.5);
  check_sequence(optimizer, scheduler, {1, (1 + half) / 2, 0.5, (1 - half) / 2});
  CHECK(optimizer.learning_rate() == doctest::Approx(0));
  scheduler.step();
  CHECK(optimizer.learning_rate() == doctest::Approx(0));
  CosineAnnealingLR floored(optimizer, {.steps = 4, .minimum = 0.2});
  floored.step();
  floored.step();
  CHECK(optimizer.learning_rate(0) == doctest::Approx(0.6));
  CHECK(optimizer.learning_rate(1) == doctest::Approx(5.1));
}

TEST_CASE("schedulers: WarmupLR alone and before another") {
  SGD optimizer = two_groups();
  WarmupLR alone(optimizer, {.steps = 4});
  check_sequence(optimizer, alone, {0.25, 0.5, 0.75, 1, 1, 1});
  WarmupLR scheduler(optimizer, {.steps = 2}, StepLR(optimizer, {.step_size = 2, .gamma = 0.1}));
  check_sequence(optimizer, scheduler, {0.5, 1, 1, 1, 0.1, 0.1, 0.01});
}

TEST_CASE("schedulers: a restored state continues with the same bits") {
  SGD optimizer = two_groups();
  CosineAnnealingLR first(optimizer, {.steps = 100});
  for (int i = 0; i < 37; ++i) first.step();
  const double rate = optimizer.learning_rate();
  SGD other = two_groups();
  CosineAnnealingLR second(other, {.steps = 100});
  second.load_state(first.state());
  CHECK(second.steps() == 37);
  CHECK(other.learning_rate() == rate);
  first.step();
  second.step();
  CHECK(other.learning_rate() == optimizer.learning_rate());
}

TEST_CASE("schedulers: errors") {
  SGD optimizer = two_groups();
  CHECK_THROWS_WITH_AS(StepLR(optimizer, {}), "StepLR: expected step_size >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(StepLR(optimizer, {.step_size = 1, .gamma = 0}), "StepLR: expected gamma > 0, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(ExponentialLR(optimizer, {}), "ExponentialLR: expected gamma > 0, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(optimizer, {}), "CosineAnnealingLR: expected steps >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(CosineAnnealingLR(optimizer, {.steps = 1, .minimum = -1}),
                       "CosineAnnealingLR: expected minimum >= 0, got -1", ShapeError);
  CHECK_THROWS_WITH_AS(WarmupLR(optimizer, {}), "WarmupLR: expected steps >= 1, got 0", ShapeError);
  CHECK(optimizer.learning_rate() == 1);
  StepLR scheduler(optimizer, {.step_size = 1});
  CHECK_THROWS_WITH_AS(scheduler.load_state({}), "Scheduler::load_state: the number \"steps\" is missing", Error);
  CHECK_THROWS_WITH_AS(scheduler.load_state({{}, {{"steps", 1}, {"more", 2}}}),
                       "Scheduler::load_state: expected 0 tensors and 1 numbers, got 0 and 2", Error);
  CHECK(scheduler.steps() == 0);
}

TEST_CASE("schedulers: a step that throws is not counted") {
  struct Failing : Scheduler {
    explicit Failing(Optimizer& optimizer) : Scheduler(optimizer) { apply(); }
    [[nodiscard]] double learning_rate(double initial, std::int64_t step) const override { return step == 0 ? initial : -1; }
  };
  SGD optimizer = two_groups();
  Failing scheduler(optimizer);
  OptimizerState later = scheduler.state();
  later.numbers[0].second = 5;
  CHECK_THROWS_WITH_AS(scheduler.step(), "SGD: expected learning_rate >= 0, got -1", ShapeError);
  CHECK_THROWS_AS(scheduler.load_state(later), ShapeError);
  CHECK(scheduler.steps() == 0);
  CHECK(optimizer.learning_rate() == 1);
}
