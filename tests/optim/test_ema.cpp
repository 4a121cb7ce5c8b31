#include "optim/ema.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;

namespace {

struct Weights {
  Tensor w = Tensor::from_vector<double>({1, 2}).set_requires_grad(true);
  void set(double a, double b) {
    const NoGradGuard no_grad;
    w.copy_(Tensor::from_vector<double>({a, b}));
  }
  [[nodiscard]] std::vector<double> values() const { return w.to_vector<double>(); }
};

}  // namespace

TEST_CASE("ema: the recurrence, from the weights it was made with") {
  Weights weights;
  ExponentialMovingAverage average({weights.w}, {.decay = 0.75});
  double expected = 1;
  for (const double value : {5.0, -3.0, 8.0, 0.0}) {
    weights.set(value, 2);
    average.update();
    expected = 0.75 * expected + 0.25 * value;
  }
  CHECK(average.updates() == 4);
  average.apply();
  CHECK(weights.values()[0] == doctest::Approx(expected).epsilon(testing::kDoubleRounding));
  CHECK(weights.values()[1] == 2);
}

TEST_CASE("ema: by default a thousandth of the weights comes in, without a ramp") {
  Weights weights;
  ExponentialMovingAverage average({weights.w});
  weights.set(2, 2);
  average.update();
  average.apply();
  CHECK(weights.values()[0] == doctest::Approx(1.001).epsilon(testing::kDoubleRounding));
}

TEST_CASE("ema: the ramp starts with a decay of 1/10") {
  Weights weights;
  ExponentialMovingAverage average({weights.w}, {.decay = 0.999, .ramp = true});
  double expected = 1;
  for (int n = 0; n < 5; ++n) {
    weights.set(10 * n, 2);
    average.update();
    const double decay = std::min(0.999, (1.0 + n) / (10.0 + n));
    expected = decay * expected + (1 - decay) * 10 * n;
  }
  average.apply();
  CHECK(weights.values()[0] == doctest::Approx(expected).epsilon(testing::kDoubleRounding));
}

TEST_CASE("ema: apply and restore exchange in place and keep every bit") {
  Weights weights;
  ExponentialMovingAverage average({weights.w}, {.decay = 0.5});
  weights.set(1.0 / 3, 7);
  average.update();
  const auto trained = weights.values();
  const Tensor handle = weights.w;
  average.apply();
  CHECK(average.is_applied());
  CHECK(weights.values() != trained);
  CHECK(weights.w.is_same(handle));
  CHECK(weights.w.requires_grad());
  const auto averaged = weights.values();
  average.restore();
  CHECK(weights.values() == trained);
  average.apply();
  CHECK(weights.values() == averaged);
}

TEST_CASE("ema: a restored state continues with the same bits") {
  Weights weights;
  ExponentialMovingAverage first({weights.w}, {.decay = 0.9, .ramp = true});
  weights.set(0.1, 0.2);
  first.update();
  OptimizerState saved = first.state();
  for (auto& [name, tensor] : saved.tensors) tensor = tensor.clone();
  Weights other;
  ExponentialMovingAverage second({other.w}, {.decay = 0.9, .ramp = true});
  second.load_state(saved);
  other.set(0.7, 0.3);
  weights.set(0.7, 0.3);
  first.update();
  second.update();
  CHECK(second.updates() == 2);
  first.apply();
  second.apply();
  CHECK(other.values() == weights.values());
}

TEST_CASE("ema: averages keep their place, so that recorded updates go on after apply, restore and load_state") {
  Weights weights;
  ExponentialMovingAverage average({weights.w}, {.decay = 0.5});
  const Tensor place = average.state().tensors[0].second;
  const std::uint64_t version = place.storage().version();
  average.update();
  CHECK(place.storage().version() > version);
  average.apply();
  average.restore();
  OptimizerState saved = average.state();
  CHECK(saved.tensors[0].second.raw() == place.raw());
  saved.tensors[0].second = Tensor::from_vector<double>({7, 9});
  average.load_state(saved);
  CHECK(average.state().tensors[0].second.raw() == place.raw());
  CHECK(place.to_vector<double>() == std::vector<double>{7, 9});
}

TEST_CASE("ema: weights of several dtypes and strides") {
  Tensor half = Tensor::zeros({2}, {.dtype = DType::f16}), turned = Tensor::zeros({2, 3}).transpose(0, 1);
  ExponentialMovingAverage average({half, turned}, {.decay = 0.5});
  half.fill_(1);
  turned.copy_(Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  average.update();
  CHECK(average.state().tensors[0].second.to(DType::f32).to_vector<float>() == std::vector<float>{0.5F, 0.5F});
  CHECK(average.state().tensors[1].second.to_vector<float>() == std::vector<float>{0.5F, 1, 1.5F, 2, 2.5F, 3});
}

TEST_CASE("ema: errors") {
  Weights weights;
  CHECK_THROWS_WITH_AS(ExponentialMovingAverage({weights.w}, {.decay = 1}),
                       "ExponentialMovingAverage: expected decay in [0, 1), got 1", ShapeError);
  CHECK_THROWS_WITH_AS(ExponentialMovingAverage(std::vector<Tensor>{}),
                       "ExponentialMovingAverage: expected at least one parameter, got none", ShapeError);
  ExponentialMovingAverage average({weights.w});
  CHECK_THROWS_WITH_AS(average.restore(), "ExponentialMovingAverage::restore: the averages are not applied", Error);
  CHECK_THROWS_WITH_AS(average.load_state({{}, {{"updates", 1}}}),
                       "ExponentialMovingAverage::load_state: the tensor \"0.average\" is missing", Error);
  CHECK(average.updates() == 0);
  average.apply();
  CHECK_THROWS_WITH_AS(average.apply(), "ExponentialMovingAverage::apply: the averages are applied already", Error);
  CHECK_THROWS_WITH_AS(average.update(), "ExponentialMovingAverage::update: the averages are applied; call restore() first",
                       Error);
  CHECK_THROWS_WITH_AS((void)average.state(), "ExponentialMovingAverage::state: the averages are applied; call restore() first",
                       Error);
  CHECK_THROWS_WITH_AS(average.load_state({}),
                       "ExponentialMovingAverage::load_state: the averages are applied; call restore() first", Error);
}
