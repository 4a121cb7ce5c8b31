#include "layers/conv_transpose1d.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/layer_gradcheck.hpp"

using namespace polyphase;

namespace {

ConvTranspose1d::Options valid() { return {.in_channels = 4, .out_channels = 6, .kernel_size = 3, .stride = 2}; }

void fill(const Tensor& parameter, const std::vector<float>& values) {
  Tensor view = parameter.detach();
  view.copy_(Tensor::from_vector(values, parameter.shape()));
}

}  // namespace

TEST_CASE("conv_transpose1d layer: shapes, names and bound are PyTorch's") {
  ConvTranspose1d layer({.in_channels = 6, .out_channels = 4, .kernel_size = 5, .groups = 2});
  const NamedTensors state = layer.state_dict();
  REQUIRE(state.size() == 2);
  CHECK(state[0].first == "weight");
  CHECK(state[0].second.shape() == Shape{6, 2, 5});
  CHECK(state[1].first == "bias");
  CHECK(state[1].second.shape() == Shape{4});
  // fan_in of a transposed convolution is size(1)*K = C_out/G*K.
  const double bound = 1 / std::sqrt(2.0 * 5.0);
  CHECK(max(abs(layer.weight())).item() <= bound);
  CHECK(max(abs(layer.weight())).item() > 0.8 * bound);
  CHECK(max(abs(layer.bias())).item() <= bound);
  CHECK(layer.weight().dtype() == DType::f32);
}

TEST_CASE("conv_transpose1d layer: values by hand") {
  ConvTranspose1d layer(
      {.in_channels = 1, .out_channels = 1, .kernel_size = 3, .stride = 2, .padding = 1, .output_padding = 1});
  fill(layer.weight(), {1, 10, 100});
  fill(layer.bias(), {0.5F});
  // Full sum: 1 10 102 20 203 30 300; one off at the left, none at the right.
  const Tensor x = Tensor::from_vector<float>({1, 2, 3}, {1, 1, 3});
  CHECK(layer(x).to_vector<float>() == std::vector<float>{10.5F, 102.5F, 20.5F, 203.5F, 30.5F, 300.5F});
  CHECK(layer(Tensor::from_vector<float>({1, 2, 3}, {1, 3})).shape() == Shape{1, 6});
}

TEST_CASE("conv_transpose1d layer: every option reaches the convolution") {
  const Tensor x = Tensor::ones({2, 4, 5});
  const auto length = [&](ConvTranspose1d::Options options) { return ConvTranspose1d(options)(x).size(-1); };
  ConvTranspose1d::Options options = valid();
  CHECK(length(options) == 11);
  options.padding = {1, 2};
  CHECK(length(options) == 8);
  options.output_padding = 1;
  CHECK(length(options) == 9);
  options.dilation = 3;
  CHECK(length(options) == 13);
  options.groups = 2;
  CHECK(ConvTranspose1d(options)(x).shape() == Shape{2, 6, 13});
  options.bias = false;
  CHECK(ConvTranspose1d(options).parameters().size() == 1);
  options.dtype = DType::f64;
  CHECK(ConvTranspose1d(options).weight().dtype() == DType::f64);
}

TEST_CASE("conv_transpose1d layer: an output size can be asked for") {
  ConvTranspose1d layer(valid());
  CHECK(layer(Tensor::ones({1, 4, 5}), 12).size(-1) == 12);
  CHECK(layer(Tensor::ones({1, 4, 5}), 11).size(-1) == 11);
  CHECK_THROWS_AS((void)layer(Tensor::ones({1, 4, 5}), 13), ShapeError);
}

TEST_CASE("conv_transpose1d layer: gradients of input, weight and bias") {
  ConvTranspose1d layer({.in_channels = 4, .out_channels = 2, .kernel_size = 3, .stride = 2, .padding = 1, .groups = 2});
  CHECK(testing::layer_gradcheck(layer, {2, 4, 3}) == "");
}

TEST_CASE("conv_transpose1d layer: options out of range are refused by name") {
  const auto make = [](auto change) {
    ConvTranspose1d::Options options = valid();
    change(options);
    return ConvTranspose1d(options);
  };
  using O = ConvTranspose1d::Options;
  CHECK_THROWS_WITH_AS(make([](O& o) { o.in_channels = 0; }), "ConvTranspose1d: expected in_channels >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.out_channels = -1; }), "ConvTranspose1d: expected out_channels >= 1, got -1",
                       ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.kernel_size = 0; }), "ConvTranspose1d: expected kernel_size >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.stride = 0; }), "ConvTranspose1d: expected stride >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.dilation = 0; }), "ConvTranspose1d: expected dilation >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.groups = 0; }), "ConvTranspose1d: expected groups >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.padding = {0, -2}; }), "ConvTranspose1d: expected padding >= 0, got -2", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.output_padding = -1; }), "ConvTranspose1d: expected output_padding >= 0, got -1",
                       ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.output_padding = 2; }),
                       "ConvTranspose1d: expected output_padding < max(stride, dilation) = 2, got 2", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.groups = 3; }),
                       "ConvTranspose1d: expected in_channels divisible by groups, got in_channels=4 and groups=3", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.groups = 4; }),
                       "ConvTranspose1d: expected out_channels divisible by groups, got out_channels=6 and groups=4",
                       ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.padding = Padding::same(); }),
                       "ConvTranspose1d: padding same is for Conv1d; give a number", ShapeError);
  CHECK_THROWS_WITH_AS(make([](O& o) { o.dtype = DType::i64; }), "ConvTranspose1d: expected a floating-point dtype, got i64",
                       DTypeError);
}

TEST_CASE("conv_transpose1d layer: an input of other channels is refused with the numbers") {
  ConvTranspose1d layer(valid());
  CHECK_THROWS_WITH_AS((void)layer(Tensor::ones({4, 8, 100})), doctest::Contains("(4, 8, 100)"), ShapeError);
}
