#include "layers/weight_norm.hpp"

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/engine.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/linear.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "ops/norm.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using testing::max_difference;

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

TEST_CASE("HeldWeights: weights are computed once in the scope") {
  Conv1d conv = weight_norm(Conv1d({.in_channels = 3, .out_channels = 4, .kernel_size = 5}));
  const Tensor x = Tensor::randn({2, 3, 20}), expected = conv(x);
  {
    const HeldWeights held(conv);
    CHECK(conv.weight().raw() == conv.weight().raw());
    CHECK(conv.weight().requires_grad());
    CHECK(max_difference(conv(x), expected) == 0);
    std::thread([&] { CHECK(conv.weight().raw() != conv.weight().raw()); }).join();  // they are the calling thread's
  }
  {
    const NoGradGuard no_grad;
    const HeldWeights held(conv);
    CHECK_FALSE(conv.weight().requires_grad());
  }
  const Tensor one = conv.weight(), other = conv.weight();
  CHECK(one.raw() != other.raw());
  CHECK(conv.weight().requires_grad());
}

TEST_CASE("HeldWeights: gradients of several modules, and casts of biases under autocast") {
  Conv1d conv = weight_norm(Conv1d({.in_channels = 3, .out_channels = 3, .kernel_size = 5, .padding = 2}));
  Sequential net(weight_norm(Conv1d({.in_channels = 3, .out_channels = 4, .kernel_size = 3})),
                 Conv1d({.in_channels = 4, .out_channels = 2, .kernel_size = 1}));
  std::vector<Tensor> parameters = conv.parameters();
  for (const Tensor& parameter : net.parameters()) parameters.push_back(parameter);
  const Tensor x = Tensor::randn({2, 3, 20});
  const auto gradients = [&] {
    for (const Tensor& parameter : parameters) parameter.set_grad({});
    const Tensor y = net(conv(x));
    sum(square(y.to(DType::f32))).backward();
    std::vector<std::vector<float>> all;
    for (const Tensor& parameter : parameters) all.push_back(parameter.grad().to_vector<float>());
    return all;
  };
  for (const bool casts : {false, true}) {
    std::optional<AutocastGuard> guard;
    if (casts) guard.emplace(DType::bf16);
    const auto expected = gradients();
    const HeldWeights held(std::array<Module*, 2>{&conv, &net});
    CHECK(gradients() == expected);
    CHECK_THROWS_AS(gradients(), Error);  // the weights' part of the tape is used up
  }
}

TEST_CASE("HeldWeights: gradients of a weight's uses are added") {
  Conv1d conv = weight_norm(Conv1d({.in_channels = 3, .out_channels = 3, .kernel_size = 5, .padding = 2, .dtype = DType::f64}));
  const Tensor x = Tensor::randn({2, 3, 20}, {.dtype = DType::f64});
  const auto gradients = [&] {
    for (const Tensor& parameter : conv.parameters()) parameter.set_grad({});
    sum(square(conv(conv(x)))).backward();
    std::vector<Tensor> all;
    for (const Tensor& parameter : conv.parameters()) all.push_back(parameter.grad());
    return all;
  };
  const std::vector<Tensor> expected = gradients();
  const HeldWeights held(conv);
  const std::vector<Tensor> got = gradients();
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(allclose(got[i], expected[i], 1e-12, 1e-12));
}

TEST_CASE("HeldWeights: observed leaves get their gradients layer by layer, and weights held without recording are recorded") {
  Sequential net(Conv1d({.in_channels = 2, .out_channels = 3, .kernel_size = 3}),
                 Conv1d({.in_channels = 3, .out_channels = 2, .kernel_size = 3}));
  weight_norm(net);
  struct Order : autograd::LeafObserver {
    std::vector<std::size_t> numbers;
    Tensor finish_leaf(std::size_t number, const Tensor&, const Tensor& gradient) override {
      numbers.push_back(number);
      return gradient;
    }
    void end_pass() override {}
  } order;
  const std::vector<Tensor> parameters = net.parameters();  // bias, g and v of each layer
  const Tensor x = Tensor::randn({2, 2, 9});
  sum(square(net(x))).backward();
  std::vector<std::vector<float>> expected;
  for (const Tensor& parameter : parameters) expected.push_back(parameter.grad().to_vector<float>());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].set_grad({});
    autograd::observe_leaf(parameters[i], &order, i);
  }
  {
    const HeldWeights held(net);
    sum(square(net(x))).backward();
  }
  REQUIRE(order.numbers.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK((order.numbers[i] >= 3) == (i < 3));  // the last layer's first
  for (const Tensor& parameter : parameters) autograd::observe_leaf(parameter, nullptr);
  for (const Tensor& parameter : parameters) parameter.set_grad({});
  std::optional<NoGradGuard> no_grad(std::in_place);
  const HeldWeights held(net);
  no_grad.reset();
  sum(square(net(x))).backward();
  for (std::size_t i = 0; i < parameters.size(); ++i) CHECK(parameters[i].grad().to_vector<float>() == expected[i]);
}

TEST_CASE("weight_norm: under autocast the weight is rounded where it is computed, with the gradients of a cast") {
  Conv1d conv = weight_norm(Conv1d({.in_channels = 3, .out_channels = 4, .kernel_size = 5}));
  const std::vector<Tensor> parameters = conv.parameters();
  const Tensor &g = parameters[1], &v = parameters[2];
  const Tensor x = Tensor::randn({2, 3, 20});
  const auto gradients = [&](const Tensor& y) {
    g.set_grad({}), v.set_grad({});
    sum(y * y).backward();
    return std::array{g.grad().clone(), v.grad().clone()};
  };
  const AutocastGuard guard(DType::bf16);
  CHECK(conv.weight().dtype() == DType::bf16);
  const Tensor y = conv(x);
  const auto fused = gradients(y);
  const Tensor w = weight_norm_of(v, g).to(DType::bf16), expected = conv1d(x, w, conv.bias());
  CHECK(max_difference(y, expected) == 0);
  const auto separate = gradients(expected);
  CHECK(max_difference(fused[0], separate[0]) == 0);
  CHECK(max_difference(fused[1], separate[1]) == 0);
}

TEST_CASE("weight_norm: nothing to do is an error") {
  Sequential net{ReLU()};
  CHECK_THROWS_WITH_AS(weight_norm(net), "weight_norm: expected a layer with a plain weight, found none", Error);
  CHECK_THROWS_WITH_AS(remove_weight_norm(net), "remove_weight_norm: expected a weight-normalised layer, found none", Error);
  ConvTranspose1d layer = weight_norm(transposed());
  CHECK_THROWS_AS(weight_norm(layer), Error);
}

// PyTorch's formula on a matrix of two rows: v = W^T u/||W^T u||, u = W v/||W v||, w = W/(u^T W v).
TEST_CASE("spectral_norm: a step of power iteration by hand, in training only") {
  Linear layer({.in_features = 2, .out_features = 2, .bias = false, .dtype = DType::f64});
  spectral_norm(layer);
  const NamedTensors state = layer.state_dict();
  REQUIRE(state.size() == 3);
  CHECK(state[0].first == "weight_orig");
  CHECK(state[1].first == "weight_u");
  CHECK(state[2].first == "weight_v");
  layer.load_state_dict({{"weight_orig", Tensor::from_vector<double>({3, 0, 4, 5}, {2, 2})},
                         {"weight_u", Tensor::from_vector<double>({1, 0})},
                         {"weight_v", Tensor::from_vector<double>({0, 1})}});
  const Tensor first = layer.weight();  // v = (1, 0), u = (3, 4)/5, u^T W v = 5
  CHECK(max_difference(first, Tensor::from_vector<double>({0.6, 0, 0.8, 1}, {2, 2})) <= testing::kDoubleRounding);
  CHECK(max_difference(layer.state_dict()[1].second, Tensor::from_vector<double>({0.6, 0.8})) <= testing::kDoubleRounding);
  CHECK(layer.state_dict()[2].second.to_vector<double>() == std::vector<double>{1, 0});
  layer.eval();
  CHECK(layer.weight().to_vector<double>() == first.to_vector<double>());  // the vectors stay
  layer.train();
  CHECK(layer.weight().to_vector<double>() != first.to_vector<double>());
}

TEST_CASE("spectral_norm: gradients, two forwards before a backward, folding") {
  Conv1d conv = spectral_norm(Conv1d({.in_channels = 4, .out_channels = 6, .kernel_size = 3, .groups = 2}));
  conv.eval();  // so that all evaluations have the same vectors
  CHECK(testing::layer_gradcheck(conv, {2, 4, 5}) == "");
  conv.train();
  const Tensor x = testing::random_f64({1, 4, 5});
  const Tensor twice = conv(x) + conv(x);
  CHECK_NOTHROW(sum(twice).backward());
  conv.eval();
  const Tensor before = conv(x);
  CHECK_THROWS_WITH_AS(weight_norm(conv), "weight_norm: expected a layer with a plain weight, found none", Error);
  remove_spectral_norm(conv);
  CHECK(conv(x).to_vector<double>() == before.to_vector<double>());
  CHECK(conv.state_dict()[0].first == "weight");
  CHECK_THROWS_WITH_AS(remove_spectral_norm(conv), "remove_spectral_norm: expected a layer under spectral norm, found none",
                       Error);
  ConvTranspose1d up = transposed();
  CHECK_THROWS_AS(spectral_norm(up), NotImplemented);
}

TEST_CASE("HeldWeights::Spectral: one step of power iteration for all forwards of the scope, none outside training") {
  Sequential net(Conv1d({.in_channels = 2, .out_channels = 4, .kernel_size = 3}),
                 Linear({.in_features = 8, .out_features = 3}));
  spectral_norm(net);
  const Tensor x = Tensor::randn({2, 2, 10});
  const auto copy_of = [](const NamedTensors& tensors) {
    NamedTensors copies;
    for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.clone());
    return copies;
  };
  const auto values_of = [](const NamedTensors& tensors) {
    std::vector<std::vector<float>> all;
    for (const auto& [name, tensor] : tensors) all.push_back(tensor.to_vector<float>());
    return all;
  };
  const NamedTensors start = copy_of(net.state_dict());
  const auto again = [&] {
    net.load_state_dict(start);
    for (const Tensor& parameter : net.parameters()) parameter.set_grad({});
  };
  for (const bool casts : {false, true}) {
    std::optional<AutocastGuard> guard;
    if (casts) guard.emplace(DType::bf16);
    again();
    const Tensor y = net(x);
    sum(square(y.to(DType::f32))).backward();
    const auto after = values_of(net.state_dict());
    CHECK(after != values_of(start));
    std::vector<std::vector<float>> gradients;
    for (const Tensor& parameter : net.parameters()) gradients.push_back(parameter.grad().to_vector<float>());
    again();
    {
      const HeldWeights held(HeldWeights::Spectral{net});
      const Tensor first = net(x);
      CHECK(max_difference(first, y) == 0);
      {
        const NoGradGuard no_grad;
        CHECK(max_difference(net(x), y) == 0);
      }
      CHECK(values_of(net.state_dict()) == after);
      sum(square(first.to(DType::f32))).backward();
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) CHECK(net.parameters()[i].grad().to_vector<float>() == gradients[i]);
    net.eval();
    {
      const HeldWeights held(HeldWeights::Spectral{net});
      (void)net(x);
      CHECK(values_of(net.state_dict()) == after);
    }
    net.train();
  }
}

TEST_CASE("spectral_norm: a weight of 16 bits is computed in f32 and rounded, and its vectors are kept") {
  Conv1d conv = spectral_norm(Conv1d({.in_channels = 3, .out_channels = 5, .kernel_size = 3}));
  Conv1d half = spectral_norm(Conv1d({.in_channels = 3, .out_channels = 5, .kernel_size = 3, .dtype = DType::f16}));
  half.load_state_dict(conv.state_dict());
  NamedTensors rounded;
  for (const auto& [name, tensor] : half.state_dict()) rounded.emplace_back(name, tensor.to(DType::f32));
  conv.load_state_dict(rounded);
  const Tensor w = half.weight();
  CHECK(w.dtype() == DType::f16);
  CHECK(max_difference(w, conv.weight().to(DType::f16)) == 0);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(max_difference(half.state_dict()[i].second, conv.state_dict()[i].second.to(DType::f16)) == 0);
  sum(square(w.to(DType::f32))).backward();
  CHECK(half.parameters().back().grad().dtype() == DType::f16);
  const Tensor expected = conv.weight();  // the next step
  half.parameters().back().set_grad({});
  const HeldWeights held = [&] {
    const NoGradGuard no_grad;
    return HeldWeights(HeldWeights::Spectral{half});
  }();
  CHECK(half.weight().raw() == half.weight().raw());
  CHECK(testing::max_difference(half.weight(), expected) <= testing::kHalfRounding);
  sum(square(half.weight().to(DType::f32))).backward();
  CHECK(half.parameters().back().grad().defined());
}

TEST_CASE("spectral_norm: a step of power iteration is a write to the vectors that a tape may hold") {
  Conv1d conv = spectral_norm(Conv1d({.in_channels = 2, .out_channels = 3, .kernel_size = 3}));
  conv.eval();
  const Tensor y = sum(conv.weight());
  conv.train();
  const Tensor next = sum(conv.weight());
  CHECK(testing::error_of<Error>([&] { return y.backward(), 0; }).find("spectral_norm") != std::string::npos);
  CHECK_NOTHROW(next.backward());  // its vectors are its own
}
