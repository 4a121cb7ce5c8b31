#include "layers/conv1d.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/layer_gradcheck.hpp"

using namespace polyphase;

namespace {

Conv1d::Options valid() { return {.in_channels = 4, .out_channels = 6, .kernel_size = 3}; }

Tensor run_ones(const Conv1d::Options& options, const std::vector<float>& x) {
  Conv1d layer(options);
  layer.load_state_dict({{"weight", Tensor::ones(layer.weight().shape())}});
  return layer(Tensor::from_vector(x, {1, 1, static_cast<std::int64_t>(x.size())}));
}

}  // namespace

TEST_CASE("conv1d layer: shapes, names and bound are PyTorch's") {
  Conv1d layer({.in_channels = 6, .out_channels = 4, .kernel_size = 5, .groups = 2});
  const NamedTensors state = layer.state_dict();
  REQUIRE(state.size() == 2);
  CHECK(state[0].first == "weight");
  CHECK(state[0].second.shape() == Shape{4, 3, 5});
  CHECK(state[1].first == "bias");
  CHECK(state[1].second.shape() == Shape{4});
  const double bound = 1 / std::sqrt(3.0 * 5.0);
  CHECK(max(abs(layer.weight())).item() <= bound);
  CHECK(max(abs(layer.weight())).item() > 0.8 * bound);
  CHECK(max(abs(layer.bias())).item() <= bound);
}

TEST_CASE("conv1d layer: padding modes") {
  Conv1d::Options options{.in_channels = 1, .out_channels = 1, .kernel_size = 3, .padding = 2, .bias = false};
  CHECK(run_ones(options, {1, 2, 4}).to_vector<float>() == std::vector<float>{1, 3, 7, 6, 4});
  options.padding_mode = PaddingMode::reflect;  // 4 2 1 2 4 2 1
  CHECK(run_ones(options, {1, 2, 4}).to_vector<float>() == std::vector<float>{7, 5, 7, 8, 7});
  options.padding_mode = PaddingMode::replicate;  // 1 1 1 2 4 4 4
  CHECK(run_ones(options, {1, 2, 4}).to_vector<float>() == std::vector<float>{3, 4, 7, 10, 12});
}

TEST_CASE("conv1d layer: padding same keeps the length, the odd one on the right") {
  Conv1d::Options options{.in_channels = 1, .out_channels = 1, .kernel_size = 4, .padding = Padding::same(), .bias = false};
  CHECK(run_ones(options, {1, 2, 4, 8}).to_vector<float>() == std::vector<float>{7, 15, 14, 12});
}

TEST_CASE("conv1d layer: every option reaches the convolution") {
  const Tensor x = Tensor::ones({2, 4, 12});
  const auto length = [&](const Conv1d::Options& options) { return Conv1d(options)(x).size(-1); };
  Conv1d::Options options = valid();
  CHECK(length(options) == 10);
  options.stride = 2;
  CHECK(length(options) == 5);
  options.padding = {1, 2};
  CHECK(length(options) == 7);
  options.dilation = 3;
  CHECK(length(options) == 5);
  options.groups = 2;
  CHECK(Conv1d(options)(x).shape() == Shape{2, 6, 5});
  options.bias = false;
  CHECK(Conv1d(options).parameters().size() == 1);
  options.dtype = DType::f64;
  CHECK(Conv1d(options).weight().dtype() == DType::f64);
}

TEST_CASE("conv1d layer: gradients of input, weight and bias") {
  Conv1d layer({.in_channels = 4, .out_channels = 2, .kernel_size = 3, .stride = 2, .padding = 1, .groups = 2});
  CHECK(testing::layer_gradcheck(layer, {2, 4, 5}) == "");
  Conv1d reflecting(
      {.in_channels = 1, .out_channels = 2, .kernel_size = 3, .padding = {2, 1}, .padding_mode = PaddingMode::reflect});
  CHECK(testing::layer_gradcheck(reflecting, {1, 5}) == "");
}

TEST_CASE("conv1d layer: options out of range are refused by name") {
  const auto make = [](auto change) {
    Conv1d::Options options = valid();
    change(options);
    return Conv1d(options);
  };
  using O = Conv1d::Options;
  CHECK_THROWS_WITH_AS(make([](O& o) { o.in_channels = 0; }), "Conv1d: expected in_channels >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.out_channels = 0; }), "Conv1d: expected out_channels >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.kernel_size = -3; }), "Conv1d: expected kernel_size >= 1, got -3", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.stride = 0; }), "Conv1d: expected stride >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.dilation = 0; }), "Conv1d: expected dilation >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.groups = 0; }), "Conv1d: expected groups >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.dtype = DType::i64; }), "Conv1d: expected a floating-point dtype, got i64",
                       DTypeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.padding = -1; }), "Conv1d: expected padding >= 0, got -1", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.groups = 3; }),
                       "Conv1d: expected in_channels divisible by groups, got in_channels=4 and groups=3", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.groups = 4; }),
                       "Conv1d: expected out_channels divisible by groups, got out_channels=6 and groups=4", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) {
                         o.padding = Padding::same();
                         o.stride = 2;
                       }),
                       "Conv1d: padding same needs stride 1, got 2", ShapeError);
}

TEST_CASE("conv1d layer: an input of other channels is refused with the numbers") {
  Conv1d layer(valid());
  CHECK_THROWS_WITH_AS((void)layer(Tensor::ones({4, 8, 100})), doctest::Contains("(4, 8, 100)"), ShapeError);
}
