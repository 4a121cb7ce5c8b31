#include "layers/weight_norm.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/linear.hpp"
#include "ops/elementwise.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;

namespace {

ConvTranspose1d transposed() { return ConvTranspose1d({.in_channels = 3, .out_channels = 2, .kernel_size = 4, .stride = 2}); }

}  // namespace

TEST_CASE("weight_norm: the layer computes what it did before, and folds back to it") {
  ConvTranspose1d layer = transposed();
  const Tensor x = Tensor::randn({2, 3, 9});
  const Tensor plain = layer(x);
  weight_norm(layer);
  const Tensor normalised = layer(x);
  CHECK(allclose(normalised, plain, testing::kFloatRounding, testing::kFloatRounding));
  remove_weight_norm(layer);
  CHECK(layer(x).to_vector<float>() == normalised.to_vector<float>());
}

TEST_CASE("weight_norm: dim 0 of a transposed convolution is C_in") {
  ConvTranspose1d layer = weight_norm(transposed());
  const NamedTensors state = layer.state_dict();
  REQUIRE(state.size() == 3);
  CHECK(state[0].first == "bias");
  CHECK(state[1].first == "weight_g");
  CHECK(state[1].second.shape() == Shape{3, 1, 1});
  CHECK(state[2].first == "weight_v");
  CHECK(state[2].second.shape() == Shape{3, 2, 4});
}

TEST_CASE("weight_norm: gradients through g and v") {
  ConvTranspose1d up = weight_norm(transposed());
  CHECK(testing::layer_gradcheck(up, {2, 3, 4}) == "");
  Conv1d conv = weight_norm(Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3}));
  CHECK(testing::layer_gradcheck(conv, {2, 5}) == "");
  Linear linear = weight_norm(Linear({.in_features = 3, .out_features = 2}));
  CHECK(linear.state_dict()[1].second.shape() == Shape{2, 1});
  CHECK(testing::layer_gradcheck(linear, {4, 3}) == "");
}

TEST_CASE("weight_norm: a whole network in one call") {
  Sequential net(Conv1d({.in_channels = 1, .out_channels = 3, .kernel_size = 3}), ReLU(), Sequential(transposed()));
  weight_norm(net);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"0.bias", "0.weight_g", "0.weight_v", "2.0.bias", "2.0.weight_g", "2.0.weight_v"});
  remove_weight_norm(net);
  CHECK(net.state_dict()[0].first == "0.weight");
  CHECK(net.parameters().size() == 4);
}

TEST_CASE("weight_norm: nothing to do is an error") {
  Sequential net{ReLU()};
  CHECK_THROWS_WITH_AS(weight_norm(net), "weight_norm: expected a layer with a plain weight, found none", Error);
  CHECK_THROWS_WITH_AS(remove_weight_norm(net), "remove_weight_norm: expected a weight-normalised layer, found none", Error);
  ConvTranspose1d layer = weight_norm(transposed());
  CHECK_THROWS_AS(weight_norm(layer), Error);
}
