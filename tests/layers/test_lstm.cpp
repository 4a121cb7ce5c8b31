#include "layers/lstm.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("LSTM: names and shapes are PyTorch's") {
  LSTM layer({.input_size = 3, .hidden_size = 2, .num_layers = 2});
  const std::vector<std::pair<std::string, Shape>> expected{
      {"weight_ih_l0", {8, 3}}, {"weight_hh_l0", {8, 2}}, {"bias_ih_l0", {8}}, {"bias_hh_l0", {8}},
      {"weight_ih_l1", {8, 2}}, {"weight_hh_l1", {8, 2}}, {"bias_ih_l1", {8}}, {"bias_hh_l1", {8}}};
  const NamedTensors state = layer.state_dict();
  REQUIRE(state.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(state[i].first == expected[i].first);
    CHECK(state[i].second.shape() == expected[i].second);
  }
  CHECK(LSTM({.input_size = 3, .hidden_size = 2, .bias = false}).state_dict().size() == 2);
}

TEST_CASE("LSTM: the second layer reads the first; state goes in and out") {
  LSTM layer({.input_size = 3, .hidden_size = 2, .num_layers = 2, .dtype = DType::f64});
  const auto p = layer.parameters();
  const Tensor x = random_f64({2, 6, 3});
  const Tensor between = lstm(x, {p[0], p[1], p[2], p[3]}).y, expected = lstm(between, {p[4], p[5], p[6], p[7]}).y;
  CHECK(max_difference(layer(x), expected) == 0);
  LSTM::State state;
  const Tensor first = layer.forward(x.narrow(1, 0, 4), state), second = layer.forward(x.narrow(1, 4, 2), state);
  REQUIRE(state.size() == 2);
  CHECK(max_difference(first, expected.narrow(1, 0, 4)) <= kDoubleRounding);
  CHECK(max_difference(second, expected.narrow(1, 4, 2)) <= kDoubleRounding);
  CHECK(layer_gradcheck(layer, {2, 3, 3}) == "");
}

TEST_CASE("LSTM: errors, after which the state is as before") {
  CHECK_THROWS_WITH_AS(LSTM({.input_size = 0, .hidden_size = 2}), "LSTM: expected input_size >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(LSTM({.input_size = 2, .hidden_size = 2, .dtype = DType::i64}),
                       "LSTM: expected a floating-point dtype, got i64", DTypeError);
  LSTM layer({.input_size = 3, .hidden_size = 2});
  LSTM::State state(2);
  CHECK_THROWS_WITH_AS((void)layer.forward(Tensor::zeros({1, 4, 3}), state), "lstm: expected a state of 1 layers, got 2",
                       ShapeError);
  state.clear();
  CHECK_THROWS_AS((void)layer.forward(Tensor::zeros({1, 4, 5}), state), ShapeError);
  CHECK(state.empty());
}

TEST_CASE("LSTM in pieces, in EnCodec's block between convolutions") {
  manual_seed(5);
  ChannelsLast alone(LSTM({.input_size = 4, .hidden_size = 6, .num_layers = 3}));
  check_stream(alone, {2, 4, 45});
  Sequential net(Conv1d({.in_channels = 3, .out_channels = 8, .kernel_size = 7, .padding = {6, 0}}),
                 Residual({.name = ""},
                          named("", ChannelsLast(named("lstm", LSTM({.input_size = 8, .hidden_size = 8, .num_layers = 2}))))),
                 ELU(), ConvTranspose1d({.in_channels = 8, .out_channels = 2, .kernel_size = 4, .stride = 2, .padding = 1}));
  check_stream(net, {2, 3, 70});
  CHECK(net.state_dict()[2].first == "1.lstm.weight_ih_l0");
  CHECK(receptive_field(net).left >= -ModuleStream::kAllBefore);
  CHECK(receptive_field(net).right == 1);
}

TEST_CASE("LSTM: a stream's state stays in one place, and begins again from zeros") {
  LSTM layer({.input_size = 3, .hidden_size = 2});
  const NoGradGuard no_grad;
  const auto stream = layer.make_stream();
  CHECK(stream->layout() == ModuleStream::Layout::channels_last);
  const Tensor x = random_f64({2, 3, 5}).to(DType::f32);
  const Tensor first = stream->push(x, false).contiguous();
  CHECK(max_difference(first, layer(x.transpose(1, 2)).transpose(1, 2)) <= kFloatRounding);
  CHECK(max_difference(stream->push(x, false), first) > kFloatRounding);
  stream->reset();
  CHECK(max_difference(stream->push(x, false), first) == 0);
}
