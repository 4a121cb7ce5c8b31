#include "layers/load_state.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/linear.hpp"
#include "layers/weight_norm.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Conv1d conv() { return Conv1d({.in_channels = 3, .out_channels = 2, .kernel_size = 4, .bias = false}); }
ConvTranspose1d transposed(DType dtype = DType::f32) {
  return ConvTranspose1d({.in_channels = 3, .out_channels = 2, .kernel_size = 4, .stride = 2, .bias = false, .dtype = dtype});
}

/// w[i, ...] = g[i] * v[i, ...] / sqrt(sum of the squares of v[i, ...]), element by element in f64.
std::vector<double> by_definition(const Tensor& g, const Tensor& v) {
  const std::vector<double> gs = g.to(DType::f64).to_vector<double>();
  std::vector<double> w = v.to(DType::f64).to_vector<double>();
  const std::size_t row = w.size() / gs.size();
  for (std::size_t i = 0; i < gs.size(); ++i) {
    double squares = 0;
    for (std::size_t j = 0; j < row; ++j) squares += w[i * row + j] * w[i * row + j];
    for (std::size_t j = 0; j < row; ++j) w[i * row + j] *= gs[i] / std::sqrt(squares);
  }
  return w;
}

/// Loads g and v of `w_shape` with both spellings of their names into plain layers made by `make`.
template <class Make>
void check_folded(const Make& make, const Shape& w_shape, const Shape& g_shape) {
  const Tensor g = random_f64(g_shape, 1), v = random_f64(w_shape, 2);
  const Tensor expected = Tensor::from_vector(by_definition(g, v), w_shape);
  const std::vector<std::pair<std::string, std::string>> spellings = {
      {"0.weight_g", "0.weight_v"}, {"0.parametrizations.weight.original0", "0.parametrizations.weight.original1"}};
  for (const auto& [g_key, v_key] : spellings) {
    Sequential net(make(DType::f64));
    const Tensor weight = net.parameters()[0];
    net.load_state_dict({{v_key, v}, {g_key, g}});
    CHECK(max_difference(weight, expected) <= kDoubleSum);
    CHECK(weight.requires_grad());
    // f32 and 16-bit weights are folded in f32, with the bits of a layer that loads g and v and is folded afterwards.
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Sequential plain(make(DType::f32)), normalised(make(DType::f32));
      plain.load_state_dict({{g_key, g.to(dtype)}, {v_key, v.to(dtype)}});
      weight_norm(normalised);
      normalised.load_state_dict({{g_key, g.to(dtype)}, {v_key, v.to(dtype)}});
      remove_weight_norm(normalised);
      CHECK(plain.parameters()[0].to_vector<float>() == normalised.parameters()[0].to_vector<float>());
    }
  }
}

std::string problems(Module& net, const NamedTensors& state) {
  std::vector<std::vector<float>> before;
  for (const auto& [name, tensor] : net.state_dict()) before.push_back(tensor.to_vector<float>());
  const std::string text = error_of<Error>([&] {
    net.load_state_dict(state);
    return 0;
  });
  std::vector<std::vector<float>> after;
  for (const auto& [name, tensor] : net.state_dict()) after.push_back(tensor.to_vector<float>());
  CHECK(after == before);
  return text.substr(std::min(text.size(), std::string("load_state_dict: the state does not fit the module; ").size()));
}

/// A module that has the names of PyTorch 2 itself.
struct Parametrized : Module {
  Tensor g = Tensor::zeros({2, 1}), v = Tensor::zeros({2, 3});
  void visit(Visitor& visitor) override {
    visitor.parameter("parametrizations.weight.original0", g);
    visitor.parameter("parametrizations.weight.original1", v);
  }
  Tensor forward(const Tensor& x) override { return x; }
};

struct Twice : Module {
  Tensor a = Tensor::zeros({2}), b = Tensor::zeros({2});
  void visit(Visitor& visitor) override {
    visitor.parameter("weight", a);
    visitor.parameter("weight", b);
  }
  Tensor forward(const Tensor& x) override { return x; }
};

}  // namespace

TEST_CASE("load_state: a weight norm goes folded into plain layers; its norm is over all dimensions but the first") {
  check_folded(
      [](DType dtype) {
        return Conv1d({.in_channels = 3, .out_channels = 5, .kernel_size = 4, .bias = false, .dtype = dtype});
      },
      {5, 3, 4}, {5, 1, 1});
  // For a transposed convolution it is C_in.
  check_folded([](DType dtype) { return transposed(dtype); }, {3, 2, 4}, {3, 1, 1});
  check_folded([](DType dtype) { return Linear({.in_features = 3, .out_features = 2, .bias = false, .dtype = dtype}); }, {2, 3},
               {2, 1});
}

TEST_CASE("load_state: plain and normalised layers, both spellings, in one state") {
  Sequential net(conv(), weight_norm(conv()), weight_norm(transposed()), transposed());
  const Tensor v = Tensor::full({2, 3, 4}, 2), v_up = Tensor::full({3, 2, 4}, 2);
  Tensor one_tap = Tensor::zeros({2, 3, 4});
  one_tap.select(2, 0).select(1, 0).fill_(4);
  const NamedTensors state = {{"0.weight_g", Tensor::from_vector<float>({5, 7}, {2, 1, 1})},
                              {"0.weight_v", one_tap},
                              {"1.parametrizations.weight.original0", Tensor::full({2, 1, 1}, 5)},
                              {"1.parametrizations.weight.original1", v},
                              {"2.weight_g", Tensor::full({3, 1, 1}, 6)},
                              {"2.weight_v", v_up},
                              {"3.weight", v_up}};
  net.load_state_dict(state);
  const NamedTensors loaded = net.state_dict();
  CHECK(loaded[0].first == "0.weight");
  CHECK(loaded[0].second.select(2, 0).to_vector<float>() == std::vector<float>{5, 0, 0, 7, 0, 0});
  CHECK(loaded[0].second.slice(2, 1, 4).to_vector<float>() == std::vector<float>(18, 0));
  CHECK(loaded[1].first == "1.weight_g");
  CHECK(loaded[1].second.to_vector<float>() == std::vector<float>{5, 5});
  CHECK(loaded[2].second.to_vector<float>() == std::vector<float>(24, 2));
  CHECK(loaded[3].second.to_vector<float>() == std::vector<float>{6, 6, 6});
  CHECK(loaded[5].second.to_vector<float>() == std::vector<float>(24, 2));
}

TEST_CASE("load_state: a module that has PyTorch 2's names takes those of before") {
  Parametrized module;
  module.load_state_dict({{"weight_g", Tensor::full({2, 1}, 3)}, {"weight_v", Tensor::full({2, 3}, 4)}});
  CHECK(module.g.to_vector<float>() == std::vector<float>{3, 3});
  CHECK(module.v.to_vector<float>() == std::vector<float>(6, 4));
}

TEST_CASE("load_state: alpha of a Snake may have DAC's shape, and nothing else may") {
  Sequential net(Snake(3), SnakeBeta(3));
  const Tensor values = Tensor::from_vector<float>({1, 2, 3});
  net.load_state_dict({{"0.alpha", values.reshape({1, 3, 1})}, {"1.alpha", values.reshape({1, 3, 1})}, {"1.beta", values}});
  CHECK(net.state_dict()[0].second.to_vector<float>() == std::vector<float>{1, 2, 3});
  CHECK(net.state_dict()[0].second.shape() == Shape{3});
  CHECK(net.state_dict()[1].second.to_vector<float>() == std::vector<float>{1, 2, 3});
  CHECK(problems(net, {{"0.alpha", values.reshape({3, 1, 1})},
                       {"1.alpha", Tensor::zeros({1, 4, 1})},
                       {"1.beta", values.reshape({1, 3, 1})}}) ==
        "misshapen: 0.alpha (expected (3,), got (3, 1, 1)), 1.alpha (expected (3,), got (1, 4, 1)), 1.beta (expected (3,), got "
        "(1, 3, 1))");
}

TEST_CASE("load_state: what does not fit a folded weight is listed by key, and nothing is loaded") {
  Sequential net(conv());
  const Tensor g = Tensor::ones({2, 1, 1}), v = Tensor::ones({2, 3, 4}), w = Tensor::ones({2, 3, 4});
  CHECK(problems(net, {{"0.weight_g", g}}) == "missing: 0.weight_v (2, 3, 4)");
  CHECK(problems(net, {{"0.parametrizations.weight.original1", v}}) ==
        "missing: 0.parametrizations.weight.original0 (2, 1, 1)");
  CHECK(problems(net, {{"0.weight_g", Tensor::ones({2})}, {"0.weight_v", v}}) ==
        "misshapen: 0.weight_g (expected (2, 1, 1), got (2,))");
  CHECK(problems(net, {{"0.weight_g", Tensor::ones({1, 3, 1})}, {"0.weight_v", Tensor::ones({2, 3, 5})}}) ==
        "misshapen: 0.weight_g (expected (2, 1, 1), got (1, 3, 1)), 0.weight_v (expected (2, 3, 4), got (2, 3, 5))");
  CHECK(problems(net, {{"0.weight_g", g}, {"0.weight_v", Tensor()}}) == "misshapen: 0.weight_v (undefined)");
  CHECK(problems(net, {{"0.weight", w}, {"0.weight_g", g}, {"0.weight_v", v}}) ==
        "unexpected: 0.weight_g (a second time), 0.weight_v (a second time)");
  CHECK(problems(net, {{"0.weight_g", g}, {"0.weight_v", v}, {"0.parametrizations.weight.original0", g}}) ==
        "unexpected: 0.parametrizations.weight.original0 (a second time)");
  CHECK(problems(net, {{"0.weight", w}, {"0.bias_g", g}, {"1.weight_v", v}}) == "unexpected: 0.bias_g, 1.weight_v");
  Sequential snake{Snake(2)};  // one dimension has no norm over the others
  CHECK(problems(snake, {{"0.alpha_g", Tensor::ones({2})}, {"0.alpha_v", Tensor::ones({2})}}) ==
        "missing: 0.alpha (2,); unexpected: 0.alpha_g, 0.alpha_v");
}

TEST_CASE("load_state: not strict, half a weight norm is left out") {
  Sequential net(conv());
  const std::vector<float> before = net.parameters()[0].to_vector<float>();
  net.load_state_dict({{"0.weight_g", Tensor::ones({2, 1, 1})}}, /*strict=*/false);
  CHECK(net.parameters()[0].to_vector<float>() == before);
  CHECK_THROWS_AS(net.load_state_dict({{"0.weight_g", Tensor::ones({2})}}, false), Error);
}

TEST_CASE("load_state: two tensors of one name are refused") {
  Twice twice;
  CHECK_THROWS_WITH_AS(twice.load_state_dict({{"weight", Tensor::ones({2})}}),
                       "load_state_dict: two tensors of the module are named weight", Error);
}
