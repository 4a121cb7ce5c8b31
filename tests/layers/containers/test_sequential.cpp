#include "layers/containers/sequential.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"

using namespace polyphase;

namespace {

Sequential upsampler() {
  return Sequential(Conv1d({.in_channels = 1, .out_channels = 4, .kernel_size = 3, .padding = 1}), LeakyReLU(0.1f),
                    ConvTranspose1d({.in_channels = 4, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1}),
                    Tanh());
}

}  // namespace

TEST_CASE("sequential: feeds each output to the next module") {
  Sequential net = upsampler();
  const Tensor x = Tensor::randn({2, 1, 5});
  const Tensor step_by_step = net[3](net[2](net[1](net[0](x))));
  CHECK(net(x).shape() == Shape{2, 1, 10});
  CHECK(net(x).to_vector<float>() == step_by_step.to_vector<float>());
}

TEST_CASE("sequential: keys are positions, as in PyTorch") {
  Sequential net = upsampler();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state_dict()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"});
}

TEST_CASE("sequential: keys are the names that were chosen") {
  const auto conv = [] { return Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 1}); };
  Sequential net(named("in", conv()), ReLU(), named("convs.1", conv()), conv());
  net.push_back(named("", Sequential(named("inner", Snake(2)), Snake(2)))).push_back("shared", std::make_shared<Snake>(2));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state_dict()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"in.weight", "in.bias", "convs.1.weight", "convs.1.bias", "3.weight", "3.bias",
                                          "inner.alpha", "1.alpha", "shared.alpha"});
  const Tensor x = Tensor::randn({1, 2, 5});
  Sequential unnamed;
  for (const auto& module : net) unnamed.push_back(module);
  CHECK(net(x).to_vector<float>() == unnamed(x).to_vector<float>());
  Sequential wrapped(named("body", Sequential(Snake(2))));
  CHECK(wrapped.state_dict()[0].first == "body.0.alpha");
}

TEST_CASE("sequential: two modules of one name are refused") {
  Sequential net(named("a", ReLU()), named("2", Tanh()));
  CHECK_THROWS_WITH_AS(net.push_back(named("a", Snake(2))),
                       "Sequential: expected names that differ, got \"a\" for modules 0 and 2", Error);
  CHECK_THROWS_WITH_AS(net.push_back(Snake(2)), "Sequential: expected names that differ, got \"2\" for modules 1 and 2", Error);
  CHECK(net.size() == 2);
  CHECK(net.push_back(named("", Snake(2))).push_back(named("", Tanh())).size() == 4);
}

TEST_CASE("sequential: push_back, size, nesting, iteration") {
  Sequential net;
  CHECK(net.size() == 0);
  const Tensor x = Tensor::ones({1, 2, 3});
  CHECK(net(x).is_same(x));
  net.push_back(ReLU()).push_back(Sequential(Snake(2), Tanh()));
  net.push_back(std::make_shared<Sigmoid>());
  CHECK(net.size() == 3);
  CHECK(net.named_parameters()[0].first == "1.0.alpha");
  std::size_t count = 0;
  for (const auto& module : net) count += module != nullptr ? 1U : 0U;
  CHECK(count == 3);
}

TEST_CASE("sequential: a copy shares its modules") {
  Sequential net = upsampler();
  Sequential copy = net;
  CHECK(&copy[0] == &net[0]);
  Sequential copy_by_value(net);
  CHECK(copy_by_value.size() == 4);
}

TEST_CASE("sequential: errors") {
  Sequential net{ReLU()};
  CHECK_THROWS_WITH_AS((void)net[1], "Sequential: expected a position below 1, got 1", ShapeError);
  CHECK_THROWS_WITH_AS(net.push_back(std::shared_ptr<Module>()), "Sequential: module 1 is null", Error);
  CHECK(net.size() == 1);
}
