#include "layers/antialiased_activation.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "ops/antialias.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("antialiased activation: BigVGAN's names and filters") {
  AntialiasedActivation net(SnakeBeta(3, {.alpha_logscale = true}));
  const NamedTensors state = net.state_dict();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  CHECK(names == std::vector<std::string>{"act.alpha", "act.beta", "upsample.filter", "downsample.lowpass.filter"});
  CHECK(net.parameters().size() == 2);
  for (const std::size_t i : {2U, 3U}) {
    CHECK(state[i].second.shape() == Shape{1, 1, 12});
    CHECK(max_difference(state[i].second.flatten(), kaiser_sinc_filter(0.25, 0.3, 12)) == 0);
  }
}

TEST_CASE("antialiased activation: the function with the layer's activation and the filters it was given") {
  AntialiasedActivation net(SnakeBeta(3, {.alpha = 0.7, .dtype = DType::f64}), {.dtype = DType::f64});
  NamedTensors state = net.state_dict();
  state[2].second = random_f64({1, 1, 12}, 2);
  state[3].second = random_f64({1, 1, 12}, 3);
  net.load_state_dict(state);
  const Tensor x = random_f64({2, 3, 17});
  const auto act = [&](const Tensor& y) { return net.activation()(y); };
  CHECK(max_difference(net(x), antialias(x, act, state[2].second, state[3].second)) == 0);
  CHECK(max_difference(net(x), antialias(x, act, state[3].second, state[2].second)) > kFloatSum);
}

TEST_CASE("antialiased activation: gradients, empty, errors") {
  AntialiasedActivation net(SnakeBeta(2, {.alpha_logscale = true}));
  CHECK(layer_gradcheck(net, {2, 2, 9}) == "");
  CHECK(net(random_f64({0, 2, 9})).shape() == Shape{0, 2, 9});
  CHECK(error_of<Error>([] { return AntialiasedActivation(std::shared_ptr<Module>(), AntialiasedActivation::Options{}); }) ==
        "AntialiasedActivation: the activation is null");
  CHECK(error_of<DTypeError>([] { return AntialiasedActivation(LeakyReLU(), {.dtype = DType::i64}); }) ==
        "AntialiasedActivation: expected a floating-point dtype, got i64");
}
