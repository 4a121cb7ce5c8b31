#include "networks/blocks/gated_mlp.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"
#include "ops/linear.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

GatedMlp swiglu() { return GatedMlp({.channels = 4, .hidden = 6, .activation = std::make_shared<SiLU>()}); }

}  // namespace

TEST_CASE("the activation of one half times the other, projected back") {
  manual_seed(1);
  GatedMlp mlp = swiglu();
  mlp.to(DType::f64);
  const NamedTensors state = mlp.state_dict();
  REQUIRE(state.size() == 3);
  CHECK(state[0].first == "gate_proj.weight");
  CHECK(state[1].first == "up_proj.weight");
  CHECK(state[2].first == "down_proj.weight");
  const Tensor x = random_f64({2, 3, 4});
  const Tensor expected = linear(mul(silu(linear(x, state[0].second)), linear(x, state[1].second)), state[2].second);
  CHECK(max_difference(mlp(x), expected) < kDoubleRounding);
  CHECK(layer_gradcheck(mlp, {2, 3, 4}) == "");
}

TEST_CASE("a gated MLP in pieces") {
  manual_seed(2);
  ChannelsLast net(swiglu());
  check_stream(net, {2, 4, 70});
}
