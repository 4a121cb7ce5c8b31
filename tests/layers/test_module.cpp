#include "layers/module.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/norm.hpp"
#include "layers/weight_norm.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"

using namespace polyphase;

namespace {

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

Conv1d small_conv(std::int64_t in, std::int64_t out) {
  return Conv1d({.in_channels = in, .out_channels = out, .kernel_size = 3, .padding = 1});
}

struct Block : Module {
  Conv1d conv = small_conv(2, 2);
  BatchNorm1d norm{{.num_features = 2}};
  Snake act{2};
  void visit(Visitor& v) override {
    v.module("conv", conv);
    v.module("norm", norm);
    v.module("act", act);
  }
  Tensor forward(const Tensor& x) override { return x + act(norm(conv(x))); }
};

struct Net : Module {
  Tensor scale = Tensor::ones({1}, {.requires_grad = true});
  Conv1d in = small_conv(1, 2);
  Sequential body{Block(), ReLU()};
  void visit(Visitor& v) override {
    v.parameter("scale", scale);
    v.module("in", in);
    v.module("body", body);
  }
  Tensor forward(const Tensor& x) override { return body(in(x)) * scale; }
};

// The same tensor under two names.
struct Tied : Module {
  Tensor weight = Tensor::ones({3}, {.requires_grad = true});
  Tensor again = weight;
  void visit(Visitor& v) override {
    v.parameter("weight", weight);
    v.parameter("again", again);
  }
  Tensor forward(const Tensor& x) override { return x * weight * again; }
};

}  // namespace

TEST_CASE("module: names follow the tree, parameters before buffers, as PyTorch orders them") {
  Net net;
  CHECK(names_of(net.state_dict()) == Names{"scale", "in.weight", "in.bias", "body.0.conv.weight", "body.0.conv.bias",
                                            "body.0.norm.weight", "body.0.norm.bias", "body.0.norm.running_mean",
                                            "body.0.norm.running_var", "body.0.norm.num_batches_tracked", "body.0.act.alpha"});
  CHECK(names_of(net.named_parameters()) == Names{"scale", "in.weight", "in.bias", "body.0.conv.weight", "body.0.conv.bias",
                                                  "body.0.norm.weight", "body.0.norm.bias", "body.0.act.alpha"});
  CHECK(net.parameters().size() == 8);
  CHECK(net.parameter_count() == 1 + 6 + 2 + 12 + 2 + 2 + 2 + 2);
}

TEST_CASE("module: a shared tensor is one parameter, two names in the state, and stays shared when converted") {
  Tied tied;
  CHECK(names_of(tied.named_parameters()) == Names{"weight"});
  CHECK(names_of(tied.state_dict()) == Names{"weight", "again"});
  CHECK(tied.parameter_count() == 3);
  tied.to(DType::f64);
  CHECK(tied.weight.dtype() == DType::f64);
  CHECK(tied.weight.is_same(tied.again));
}

TEST_CASE("module: state_dict is off the tape and shares storage") {
  Net net;
  const NamedTensors state = net.state_dict();
  CHECK_FALSE(state[0].second.requires_grad());
  CHECK(state[0].second.storage().shares_with(net.scale.storage()));
}

TEST_CASE("module: load_state_dict copies values by name in any order and dtype") {
  Net from;
  Net to;
  NamedTensors state = from.state_dict();
  std::swap(state.front(), state.back());
  for (auto& [name, tensor] : state) {
    if (is_floating_point(tensor.dtype())) tensor = tensor.to(DType::f64);
  }
  const Tensor before = to.in.weight();
  to.load_state_dict(state);
  CHECK(to.in.weight().is_same(before));  // optimizers keep the handle
  CHECK(to.in.weight().dtype() == DType::f32);
  CHECK(to.in.weight().requires_grad());
  CHECK(to.in.weight().to_vector<float>() == from.in.weight().to_vector<float>());
}

TEST_CASE("module: load_state_dict lists everything that does not fit, then has changed nothing") {
  Sequential net(small_conv(1, 2), ReLU(), small_conv(2, 1));
  const auto before = net.state_dict()[1].second.to_vector<float>();
  const NamedTensors state{{"0.bias", Tensor::full({2}, 7)},
                           {"2.weight", Tensor::zeros({1, 2, 5})},
                           {"2.bias", Tensor()},
                           {"0.bias", Tensor::zeros({2})},
                           {"9.alpha", Tensor::zeros({4})}};
  CHECK_THROWS_WITH_AS(net.load_state_dict(state),
                       "load_state_dict: the state does not fit the module; missing: 0.weight (2, 1, 3); "
                       "unexpected: 0.bias (a second time), 9.alpha; "
                       "misshapen: 2.weight (expected (1, 2, 3), got (1, 2, 5)), 2.bias (undefined)",
                       Error);
  CHECK(net.state_dict()[1].second.to_vector<float>() == before);
}

TEST_CASE("module: load_state_dict not strict takes what fits, but never a wrong shape") {
  Sequential net(small_conv(1, 2));
  net.load_state_dict({{"0.bias", Tensor::full({2}, 7)}, {"other", Tensor::zeros({1})}}, /*strict=*/false);
  CHECK(net.state_dict()[1].second.to_vector<float>() == std::vector<float>{7, 7});
  CHECK_THROWS_WITH_AS(net.load_state_dict({{"0.bias", Tensor::zeros({3})}}, false),
                       "load_state_dict: the state does not fit the module; misshapen: 0.bias (expected (2,), got (3,))",
                       Error);
}

TEST_CASE("module: load_state_dict understands the names of PyTorch 2's weight norm") {
  Sequential net(weight_norm(small_conv(1, 2)));
  net.load_state_dict({{"0.bias", Tensor::zeros({2})},
                       {"0.parametrizations.weight.original0", Tensor::full({2, 1, 1}, 3)},
                       {"0.parametrizations.weight.original1", Tensor::full({2, 1, 3}, 4)}});
  const NamedTensors state = net.state_dict();
  CHECK(names_of(state) == Names{"0.bias", "0.weight_g", "0.weight_v"});
  CHECK(state[1].second.to_vector<float>() == std::vector<float>{3, 3});
  CHECK(state[2].second.to_vector<float>() == std::vector<float>(6, 4));
}

TEST_CASE("module: to(dtype) converts what is floating point and keeps handles that are right already") {
  Net net;
  sum(net(Tensor::ones({2, 1, 4}))).backward();
  const Tensor scale = net.scale;
  net.to(DType::f32);
  CHECK(net.scale.is_same(scale));
  net.to(DType::f64);
  for (const auto& entry : net.state_dict()) {
    const std::string& name = entry.first;
    const Tensor& tensor = entry.second;
    CAPTURE(name);
    CHECK(tensor.dtype() == (name == "body.0.norm.num_batches_tracked" ? DType::i64 : DType::f64));
  }
  for (const Tensor& parameter : net.parameters()) {
    CHECK(parameter.requires_grad());
    CHECK(parameter.is_leaf());
    CHECK(parameter.grad().dtype() == DType::f64);
  }
  CHECK(net(Tensor::ones({2, 1, 4}, {.dtype = DType::f64})).dtype() == DType::f64);
  CHECK_THROWS_WITH_AS(net.to(DType::i64), "Module::to: expected a floating-point dtype, got i64", DTypeError);
  net.to(Device::cpu());
  CHECK(net.scale.device() == Device::cpu());
}

TEST_CASE("module: train and eval reach the whole tree") {
  Net net;
  Module& block = net.body[0];
  CHECK(block.is_training());
  net.eval();
  CHECK_FALSE(net.is_training());
  CHECK_FALSE(block.is_training());
  CHECK_FALSE(static_cast<Block&>(block).norm.is_training());
  net.train();
  CHECK(static_cast<Block&>(block).norm.is_training());
}

TEST_CASE("module: zero_grad and set_requires_grad") {
  Net net;
  sum(net(Tensor::ones({2, 1, 4}))).backward();
  CHECK(net.scale.grad().defined());
  net.zero_grad();
  for (const Tensor& parameter : net.parameters()) CHECK_FALSE(parameter.grad().defined());
  net.set_requires_grad(false);
  CHECK_FALSE(net(Tensor::ones({2, 1, 4})).requires_grad());
  BatchNorm1d buffers({.num_features = 1, .affine = false});  // without parameters
  buffers.eval();
  buffers.set_requires_grad(true);
  CHECK_FALSE(buffers(Tensor::ones({2, 1, 4})).requires_grad());
}

TEST_CASE("module: a copy shares the parameters, a moved one keeps them") {
  Conv1d conv = small_conv(1, 2);
  const Tensor weight = conv.weight();
  Conv1d copy = conv;
  CHECK(copy.weight().is_same(weight));
  const Conv1d moved = std::move(conv);
  CHECK(moved.weight().is_same(weight));
  std::vector<Conv1d> many;
  for (int i = 0; i < 4; ++i) many.push_back(small_conv(1, 2));
  CHECK(many[0].parameter_count() == 8);
}
