#include "layers/containers/module_list.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/dropout.hpp"
#include "layers/weight_norm.hpp"
#include "ops/activations.hpp"
#include "ops/reduce.hpp"
#include "support/layer_gradcheck.hpp"

using namespace polyphase;

namespace {

using Names = std::vector<std::string>;

Names keys(Module& module) {
  Names names;
  for (const auto& [name, tensor] : module.state_dict()) names.push_back(name);
  return names;
}

ConvTranspose1d twice_as_long(std::int64_t in, std::int64_t out) {
  return ConvTranspose1d({.in_channels = in, .out_channels = out, .kernel_size = 4, .stride = 2, .padding = 1});
}

/// Upsamples by 4; calls the list's modules one by one.
struct Upsampler : Module {
  ModuleList ups{twice_as_long(3, 2), twice_as_long(2, 1)};
  void visit(Visitor& v) override { v.module("ups", ups); }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& up : ups) y = up->forward(leaky_relu(y, 0.1));
    return y;
  }
};

}  // namespace

TEST_CASE("module_list: keys are positions, as in PyTorch") {
  Upsampler net;
  CHECK(keys(net) == Names{"ups.0.weight", "ups.0.bias", "ups.1.weight", "ups.1.bias"});
  CHECK(keys(net.ups) == Names{"0.weight", "0.bias", "1.weight", "1.bias"});
  CHECK(net.parameters().size() == 4);
  CHECK(net.parameter_count() == 3 * 2 * 4 + 2 + 2 * 1 * 4 + 1);
}

TEST_CASE("module_list: a network calls the modules, by iteration and by position") {
  Upsampler net;
  const Tensor x = Tensor::randn({2, 3, 5});
  CHECK(net(x).shape() == Shape{2, 1, 20});
  const Tensor by_position = net.ups[1](leaky_relu(net.ups[0](leaky_relu(x, 0.1)), 0.1));
  CHECK(net(x).to_vector<float>() == by_position.to_vector<float>());
  CHECK(testing::layer_gradcheck(net, {2, 3, 4}) == "");
}

TEST_CASE("module_list: push_back, size, nesting, modules that others hold too") {
  ModuleList list;
  CHECK(list.size() == 0);
  CHECK(list.begin() == list.end());
  const auto shared = std::make_shared<Snake>(3);
  list.push_back(ReLU()).push_back(ModuleList(Snake(2), Sequential(Tanh(), Snake(4)))).push_back(shared);
  CHECK(list.size() == 3);
  CHECK(keys(list) == Names{"1.0.alpha", "1.1.1.alpha", "2.alpha"});
  CHECK(&list[2] == shared.get());
  ModuleList copy = list;  // not a list of a list
  CHECK(copy.size() == 3);
  CHECK(&copy[0] == &list[0]);
}

TEST_CASE("module_list: state, dtype, training mode and weight norm reach the modules") {
  Upsampler from, to;
  to.load_state_dict(from.state_dict());
  const Tensor x = Tensor::randn({1, 3, 5});
  CHECK(to(x).to_vector<float>() == from(x).to_vector<float>());
  weight_norm(to);
  CHECK(keys(to)[1] == "ups.0.weight_g");
  to.to(DType::f64);
  CHECK(to.parameters()[0].dtype() == DType::f64);
  ModuleList list(Dropout(0.5), Sequential(Dropout(0.5)));
  list.eval();
  CHECK_FALSE(list[0].is_training());
  CHECK_FALSE(static_cast<Sequential&>(list[1])[0].is_training());
  list.train();
  CHECK(list[0].is_training());
}

TEST_CASE("module_list: the list itself cannot be called") {
  ModuleList list{ReLU(), Tanh()};
  CHECK_THROWS_WITH_AS((void)list(Tensor::ones({1, 2, 3})),
                       "ModuleList: expected its 2 modules to be called one by one, got a call of the list, which has no "
                       "forward; Sequential has one",
                       NotImplemented);
}

TEST_CASE("module_list: errors") {
  ModuleList list{ReLU()};
  CHECK_THROWS_WITH_AS((void)list[1], "ModuleList: expected a position below 1, got 1", ShapeError);
  CHECK_THROWS_WITH_AS(list.push_back(std::shared_ptr<Module>()), "ModuleList: module 1 is null", Error);
  CHECK(list.size() == 1);
}
