#include "golden/network.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::golden;
using namespace polyphase::testing;

namespace {

std::string error_for(const std::string& text) {
  return error_of<FormatError>([&] { return parse_network(text, [](std::size_t) { return true; }); });
}

}  // namespace

TEST_CASE("settings reach the layers") {
  Sequential net = parse_network("Conv1d(2,4,3,s2,p1,d2,g2)  ConvTranspose1d(4,6,5,s3,p2,op1,g2)\nLeakyReLU(.1) Tanh",
                                 [](std::size_t index) { return index == 0; });
  REQUIRE(net.size() == 4);
  const NamedTensors state = net.state_dict();
  REQUIRE(state.size() == 3);
  CHECK(state[0].first == "0.weight");
  CHECK(state[0].second.shape() == Shape{4, 1, 3});
  CHECK(state[0].second.dtype() == DType::f64);
  CHECK(state[1].first == "0.bias");
  CHECK(state[2].first == "1.weight");
  CHECK(state[2].second.shape() == Shape{4, 3, 5});
  // (11 + 2 - 2*2 - 1)/2 + 1 = 5, then (5 - 1)*3 - 4 + 4 + 1 + 1 = 14
  CHECK(net(random_f64({1, 2, 11})).shape() == Shape{1, 6, 14});
}

TEST_CASE("every layer of the grammar can be made") {
  Sequential net = parse_network(
      "Conv1d(2,4,3,p1) ReLU ELU ELU(.5) GELU SiLU Sigmoid Tanh LeakyReLU Snake(4) SnakeBeta(4) GroupNorm(2,4) BatchNorm1d(4) "
      "Upsample(2) PixelShuffle1d(2) Linear(28,5)",
      [](std::size_t) { return true; });
  CHECK(net.size() == 16);
  CHECK(net(random_f64({2, 2, 7})).shape() == Shape{2, 2, 5});
}

TEST_CASE("what cannot be read is named") {
  CHECK(error_for("") == "network: expected at least one layer, got ''");
  CHECK(error_for("Conv3d(1,1,1)") == "network: layer Conv3d(1,1,1): unknown layer");
  CHECK(error_for("Conv1d(1,1,1") == "network: layer Conv1d(1,1,1: expected ')' at the end");
  CHECK(error_for("Conv1d(1,1)") == "network: layer Conv1d(1,1): expected at least 3 numbers, got 2");
  CHECK(error_for("Conv1d(1,1,1,1)") == "network: layer Conv1d(1,1,1,1): expected at most 3 numbers, got 4");
  CHECK(error_for("Conv1d(1,1,1,op1)") == "network: layer Conv1d(1,1,1,op1): unknown setting op");
  CHECK(error_for("Conv1d(1,1,1,p)") == "network: layer Conv1d(1,1,1,p): cannot read the argument 'p'");
  CHECK(error_for("Conv1d(1,1,1,p1,p2)") == "network: layer Conv1d(1,1,1,p1,p2): the setting p appears twice");
  CHECK(error_for("Conv1d(1,1.5,1)") == "network: layer Conv1d(1,1.5,1): expected a whole number, got 1.5");
  CHECK(error_for("Tanh(1,2,3)") == "network: layer Tanh(1,2,3): expected at most 2 numbers, got 3");
}
