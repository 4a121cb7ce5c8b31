#include "optim/grad_scaler.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "autograd/autocast.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/losses.hpp"
#include "ops/elementwise.hpp"
#include "ops/linear.hpp"
#include "ops/reduce.hpp"
#include "optim/adam.hpp"
#include "optim/clip.hpp"
#include "optim/sgd.hpp"
#include "support/helpers.hpp"
#include "support/quadratic.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

const double kInfinity = std::numeric_limits<double>::infinity();

void spoil(const Tensor& parameter) {
  Tensor grad = parameter.grad();
  grad.select(0, 0).fill_(kInfinity);
}

double number(const OptimizerState& state, const std::string& name) {
  for (const auto& [key, value] : state.numbers)
    if (key == name) return value;
  return NAN;
}

}  // namespace

TEST_CASE("grad_scaler: scaled steps are the plain ones") {
  const Quadratic plain, scaled;
  Adam first({plain.parameter}, {.learning_rate = 0.1}), second({scaled.parameter}, {.learning_rate = 0.1});
  GradScaler scaler;
  for (int step = 0; step < 5; ++step) {
    first.zero_grad();
    plain.loss().backward();
    first.step();
    second.zero_grad();
    const Tensor loss = scaled.loss();
    const Tensor large = scaler.scale(loss);
    CHECK(large.item() == 65536 * loss.item());
    large.backward();
    scaler.step(second);
    scaler.update();
  }
  // Powers of two, so no bit is lost.
  CHECK(scaled.parameter.to_vector<double>() == plain.parameter.to_vector<double>());
  CHECK(scaler.growth_tracker() == 5);
  CHECK(scaler.skipped() == 0);
}

TEST_CASE("grad_scaler: a step with an infinite gradient is skipped and counted, and halves the scale") {
  const Quadratic problem;
  Adam optimizer({problem.parameter}, {.learning_rate = 0.1});
  GradScaler scaler({.initial_scale = 8, .growth_interval = 3});
  const auto step = [&](bool bad) {
    optimizer.zero_grad();
    scaler.scale(problem.loss()).backward();
    if (bad) spoil(problem.parameter);
    scaler.step(optimizer);
    scaler.update();
  };
  step(false);
  const std::vector<double> before = problem.parameter.to_vector<double>();
  const std::vector<double> moment = optimizer.state().tensors[0].second.to_vector<double>();
  step(true);
  CHECK(problem.parameter.to_vector<double>() == before);
  CHECK(optimizer.state().tensors[0].second.to_vector<double>() == moment);
  CHECK(optimizer.steps() == 1);
  CHECK(number(optimizer.state(), "0.steps") == 1);
  CHECK(scaler.scale() == 4);
  CHECK(scaler.skipped() == 1);
  CHECK(scaler.growth_tracker() == 0);
  step(false);
  CHECK(optimizer.steps() == 2);
  CHECK(problem.parameter.to_vector<double>() != before);
  CHECK(scaler.growth_tracker() == 1);
  step(false);
  step(false);
  CHECK(scaler.scale() == 8);
  CHECK(scaler.growth_tracker() == 0);
}

TEST_CASE("grad_scaler: a first step that is left out leaves the second a first one") {
  const Quadratic problem;
  SGD optimizer({problem.parameter}, {.learning_rate = 0.25, .momentum = 0.5, .dampening = 0.5});
  GradScaler scaler;
  scaler.scale(problem.loss()).backward();
  spoil(problem.parameter);
  scaler.step(optimizer);
  scaler.update();
  CHECK(optimizer.steps() == 0);
  optimizer.zero_grad();
  scaler.scale(problem.loss()).backward();
  scaler.step(optimizer);
  // The first velocity has no dampening: it is the gradient.
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(problem.parameter.to_vector<double>()[i] ==
          doctest::Approx(problem.w[i] - 0.25 * problem.gradient(i)).epsilon(kDoubleRounding));
}

TEST_CASE("grad_scaler: gradients unscaled for clipping are not unscaled again") {
  const Quadratic problem;
  SGD optimizer({problem.parameter}, {.learning_rate = 1});
  GradScaler scaler;
  scaler.scale(problem.loss()).backward();
  const std::uint64_t version = problem.parameter.grad().storage().version();
  scaler.unscale(optimizer);
  CHECK(problem.parameter.grad().storage().version() > version);
  CHECK(problem.parameter.grad().to_vector<double>()[0] == problem.gradient(0));
  clip_grad_norm({problem.parameter}, 1);
  const std::vector<double> clipped = problem.parameter.grad().to_vector<double>();
  scaler.step(optimizer);
  scaler.update();
  for (std::size_t i = 0; i < 3; ++i) CHECK(problem.parameter.to_vector<double>()[i] == problem.w[i] - clipped[i]);
}

TEST_CASE("grad_scaler: of two optimizers only the one with bad gradients is held back") {
  const Quadratic good, bad;
  SGD first({good.parameter}), second({bad.parameter});
  GradScaler scaler;
  scaler.scale(good.loss()).backward();
  scaler.scale(bad.loss()).backward();
  spoil(bad.parameter);
  scaler.step(first);
  scaler.step(second);
  scaler.update();
  CHECK(first.steps() == 1);
  CHECK(second.steps() == 0);
  CHECK(bad.parameter.to_vector<double>() == bad.w);
  CHECK(scaler.scale() == 32768);
  CHECK(scaler.skipped() == 1);
}

TEST_CASE("grad_scaler: f16 training overflows, backs off and learns") {
  Generator generator(3);
  const Tensor x = Tensor::randn({64, 8}, {}, &generator);
  const Tensor y = Tensor::randn({64, 4}, {}, &generator);
  Tensor w = Tensor::zeros({4, 8}).set_requires_grad(true);
  SGD optimizer({w}, {.learning_rate = 0.5});
  GradScaler scaler({.initial_scale = 0x1p40});
  const auto loss_now = [&] {
    const AutocastGuard autocast(DType::f16);
    return mse_loss(linear(x, w), y);
  };
  const double before = loss_now().item();
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    scaler.scale(loss_now()).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  CHECK(scaler.skipped() > 10);
  CHECK(scaler.skipped() < 50);
  CHECK(scaler.scale() == std::ldexp(1.0, 40 - static_cast<int>(scaler.skipped())));
  CHECK(optimizer.steps() == 60 - scaler.skipped());
  CHECK(w.dtype() == DType::f32);
  CHECK(loss_now().item() < 0.97 * before);
  CHECK(std::isfinite(sum(w.detach()).item()));
}

TEST_CASE("grad_scaler: a restored state continues, before and after the first loss") {
  GradScaler scaler({.initial_scale = 4, .growth_interval = 2});
  scaler.load_state({{}, {{"scale", 16}, {"growth_tracker", 1}, {"skipped", 5}}});
  CHECK(scaler.scale() == 16);
  CHECK(scaler.skipped() == 5);
  const Quadratic problem;
  SGD optimizer({problem.parameter});
  scaler.scale(problem.loss()).backward();
  scaler.step(optimizer);
  scaler.update();
  CHECK(scaler.state().numbers == decltype(OptimizerState::numbers){{"scale", 32}, {"growth_tracker", 0}, {"skipped", 5}});
  scaler.load_state({{}, {{"scale", 2}, {"growth_tracker", 0}, {"skipped", 1}}});
  CHECK(scaler.scale(Tensor::ones({})).item() == 2);
  CHECK(scaler.skipped() == 1);
}

TEST_CASE("grad_scaler: by default the 2000th good step in a row doubles the scale; a loss keeps the scale it was given") {
  const Quadratic problem;
  SGD optimizer({problem.parameter});
  GradScaler scaler;
  scaler.load_state({{}, {{"scale", 16}, {"growth_tracker", 1998}, {"skipped", 0}}});
  const Tensor early = scaler.scale(problem.loss());
  REQUIRE(early.dtype() == DType::f64);
  for (const double after : {16, 32}) {
    scaler.scale(problem.loss()).backward();
    scaler.unscale(optimizer);
    scaler.update();
    CHECK(scaler.scale() == after);
  }
  problem.parameter.set_grad({});
  early.backward();
  CHECK(problem.parameter.grad().to_vector<double>()[0] == 16 * problem.gradient(0));
}

TEST_CASE("grad_scaler: not enabled, it is not there") {
  const Quadratic problem;
  SGD optimizer({problem.parameter}, {.learning_rate = 1});
  GradScaler scaler({.enabled = false});
  const Tensor loss = problem.loss();
  CHECK(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale(optimizer);
  scaler.step(optimizer);
  scaler.update();
  CHECK(scaler.scale() == 1);
  CHECK(problem.parameter.to_vector<double>()[0] == problem.w[0] - problem.gradient(0));
}

TEST_CASE("grad_scaler: errors") {
  const Quadratic problem;
  SGD optimizer({problem.parameter});
  GradScaler scaler;
  CHECK_THROWS_WITH_AS(scaler.step(optimizer), "GradScaler::step: expected scale() of a loss first", Error);
  CHECK_THROWS_WITH_AS(scaler.update(), "GradScaler::update: nothing was unscaled since the last update", Error);
  const Tensor loss = scaler.scale(problem.loss());
  CHECK_THROWS_WITH_AS(scaler.unscale(optimizer), "GradScaler::unscale: no parameter of the optimizer has a gradient", Error);
  loss.backward();
  scaler.unscale(optimizer);
  CHECK_THROWS_WITH_AS(scaler.unscale(optimizer),
                       "GradScaler::unscale: the gradients are unscaled already; call update() first", Error);
  scaler.step(optimizer);
  CHECK_THROWS_WITH_AS(scaler.step(optimizer), "GradScaler::step: the optimizer has stepped already; call update() first",
                       Error);
  scaler.update();
  Tensor half = Tensor::zeros({2}, {.dtype = DType::f16}).set_requires_grad(true);
  half.set_grad(Tensor::zeros({2}, {.dtype = DType::f16}));
  SGD of_halves({half});
  CHECK_THROWS_WITH_AS(scaler.step(of_halves),
                       "GradScaler::step: expected gradients of f32 (parameters of f32 under an AutocastGuard), got f16",
                       DTypeError);
  CHECK_THROWS_WITH_AS(scaler.load_state({{}, {{"scale", 0}}}), "GradScaler: expected a scale > 0, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(scaler.load_state({{}, {{"scale", 1}}}),
                       "GradScaler::load_state: the number \"growth_tracker\" is missing", Error);
  CHECK_THROWS_WITH_AS(scaler.load_state({{}, {{"scale", 1}, {"growth_tracker", 0}, {"skipped", 0}, {"more", 1}}}),
                       "GradScaler::load_state: expected 0 tensors and 3 numbers, got 0 and 4", Error);
  CHECK_THROWS_WITH_AS(GradScaler({.initial_scale = -1}), "GradScaler: expected a scale > 0, got -1", ShapeError);
  CHECK_THROWS_WITH_AS(GradScaler({.growth_factor = 1}), "GradScaler: expected growth_factor > 1, got 1", ShapeError);
  CHECK_THROWS_WITH_AS(GradScaler({.backoff_factor = 1}), "GradScaler: expected backoff_factor in (0, 1), got 1", ShapeError);
  CHECK_THROWS_WITH_AS(GradScaler({.growth_interval = 0}), "GradScaler: expected growth_interval >= 1, got 0", ShapeError);
}

TEST_CASE("grad_scaler: optimizers may come and go, at one address too") {
  const Quadratic problem;
  const std::vector<Tensor> parameters{problem.parameter};
  GradScaler scaler({.initial_scale = 8});
  const auto backward = [&] {
    problem.parameter.set_grad({});
    scaler.scale(problem.loss()).backward();
  };
  std::vector<std::optional<SGD>> places(70);  // more than update() handles in one call
  for (std::optional<SGD>& optimizer : places) {
    optimizer.emplace(parameters);
    backward();
    scaler.step(*optimizer);
    scaler.update();
    optimizer.reset();
  }
  std::optional<SGD>& optimizer = places.front();
  for (int i = 0; i < 2; ++i) {
    optimizer.emplace(parameters);
    backward();
    const std::vector<double> scaled = problem.parameter.grad().to_vector<double>();
    scaler.unscale(*optimizer);
    CHECK(problem.parameter.grad().to_vector<double>()[0] == scaled[0] / 8);
  }
}
