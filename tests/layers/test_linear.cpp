#include "layers/linear.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "layers/containers/channels_last.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("linear layer: shapes, names and bound are PyTorch's") {
  Linear layer({.in_features = 16, .out_features = 5});
  const NamedTensors state = layer.state_dict();
  REQUIRE(state.size() == 2);
  CHECK(state[0].first == "weight");
  CHECK(state[0].second.shape() == Shape{5, 16});
  CHECK(state[1].first == "bias");
  CHECK(state[1].second.shape() == Shape{5});
  CHECK(max(abs(layer.weight())).item() <= 0.25);
  CHECK(max(abs(layer.weight())).item() > 0.2);
  CHECK(max(abs(layer.bias())).item() <= 0.25);
  CHECK(Linear({.in_features = 2, .out_features = 3, .bias = false}).parameters().size() == 1);
}

TEST_CASE("linear layer: values by hand, any leading dimensions") {
  Linear layer({.in_features = 2, .out_features = 3});
  layer.load_state_dict(
      {{"weight", Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2})}, {"bias", Tensor::from_vector<float>({10, 20, 30})}});
  CHECK(layer(Tensor::from_vector<float>({1, -1, 0, 2}, {2, 1, 2})).to_vector<float>() ==
        std::vector<float>{9, 19, 29, 14, 28, 42});
  CHECK(layer(Tensor::ones({4, 5, 2})).shape() == Shape{4, 5, 3});
}

TEST_CASE("linear layer: gradients of input, weight and bias") {
  Linear layer({.in_features = 3, .out_features = 2});
  CHECK(testing::layer_gradcheck(layer, {2, 2, 3}) == "");
}

TEST_CASE("linear layer: errors") {
  CHECK_THROWS_WITH_AS(Linear({.in_features = 0, .out_features = 2}), "Linear: expected in_features >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(Linear({.in_features = 2, .out_features = 2, .dtype = DType::i64}),
                       "Linear: expected a floating-point dtype, got i64", DTypeError);
  CHECK_THROWS_WITH_AS(Linear({.in_features = 2}), "Linear: expected out_features >= 1, got 0", ShapeError);
  Linear layer({.in_features = 3, .out_features = 2});
  CHECK_THROWS_WITH_AS((void)layer(Tensor::ones({4, 7})), doctest::Contains("(4, 7)"), ShapeError);
}

TEST_CASE("Linear in pieces: the bits of a position do not depend on how many come with it") {
  manual_seed(7);
  Sequential net(Conv1d({.in_channels = 5, .out_channels = 40, .kernel_size = 3, .padding = 1}),
                 ChannelsLast(Linear({.in_features = 40, .out_features = 300, .bias = false}),
                              Linear({.in_features = 300, .out_features = 3})));
  check_stream(net, {2, 5, 130});
}
