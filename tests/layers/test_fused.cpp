#include "layers/fused.hpp"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <memory>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "conv/algorithm.hpp"
#include "layers/activations.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Pair = std::pair<std::shared_ptr<Module>, std::shared_ptr<Module>>;

template <class M>
std::shared_ptr<Module> share(M module) {
  return std::make_shared<M>(std::move(module));
}

std::vector<std::shared_ptr<Module>> convolutions(DType dtype) {
  return {
      share(Conv1d({.in_channels = 6, .out_channels = 4, .kernel_size = 3, .stride = 2, .padding = 1, .dtype = dtype})),
      share(Conv1d({.in_channels = 6,
                    .out_channels = 4,
                    .kernel_size = 5,
                    .padding = 2,
                    .groups = 2,
                    .bias = false,
                    .padding_mode = PaddingMode::reflect,
                    .dtype = dtype})),
      share(Conv1d({.in_channels = 6, .out_channels = 1, .kernel_size = 3, .padding = 1, .dtype = dtype})),
      share(Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 3, .groups = 6, .dtype = dtype})),
      share(
          ConvTranspose1d({.in_channels = 6, .out_channels = 4, .kernel_size = 8, .stride = 4, .padding = 2, .dtype = dtype})),
      share(ConvTranspose1d({.in_channels = 6,
                             .out_channels = 70,
                             .kernel_size = 3,
                             .stride = 2,
                             .output_padding = 1,
                             .groups = 2,
                             .dilation = 2,
                             .dtype = dtype})),
  };
}

std::int64_t channels_of(const Module& conv) {
  if (const auto* plain = dynamic_cast<const Conv1d*>(&conv)) return plain->options().out_channels;
  return dynamic_cast<const ConvTranspose1d&>(conv).options().out_channels;
}

std::vector<std::shared_ptr<Module>> activations(std::int64_t channels, DType dtype) {
  return {share(ReLU()),
          share(LeakyReLU(0.1)),
          share(LeakyReLU(0.0)),
          share(LeakyReLU(-0.5)),
          share(Tanh()),
          share(Snake(channels, {.alpha = 0.7, .dtype = dtype})),
          share(SnakeBeta(channels, {.alpha = 0.7, .alpha_logscale = true, .dtype = dtype}))};
}

std::vector<double> values(const Tensor& tensor) { return tensor.detach().to(DType::f64).to_vector<double>(); }

/// The output and the gradients of x and of all parameters, with `forward`.
std::vector<std::vector<double>> results(const Pair& pair, const Tensor& x,
                                         const std::function<Tensor(const Tensor&)>& forward) {
  Tensor leaf = x.clone();
  leaf.set_requires_grad(true);
  pair.first->zero_grad();
  pair.second->zero_grad();
  const Tensor y = forward(leaf);
  Generator generator(3);
  y.backward(Tensor::randn(y.shape(), {.dtype = DType::f64, .device = Device::cpu()}, &generator).to(y.dtype()).to(y.device()));
  std::vector<std::vector<double>> all{values(y), values(leaf.grad())};
  for (Module* module : {pair.first.get(), pair.second.get()})
    for (const Tensor& parameter : module->parameters()) all.push_back(values(parameter.grad()));
  return all;
}

void check_pair(const Pair& pair, const Tensor& x) {
  Sequential net;
  net.push_back(pair.first).push_back(pair.second);
  const auto apart = [&](const Tensor& in) { return pair.second->forward(pair.first->forward(in)); };
  const auto together = [&](const Tensor& in) { return net(in); };
  CHECK(results(pair, x, together) == results(pair, x, apart));
  const NoGradGuard no_grad;
  CHECK(values(together(x)) == values(apart(x)));
  CHECK_FALSE(values(together(x)).empty());
}

/// Batched, unbatched and transposed input.
void check_all_pairs(DType dtype) {
  manual_seed(1);
  const auto input = [&](const Shape& shape) { return random_f64(shape, 2).to(dtype).to(default_device()); };
  for (const auto& conv : convolutions(dtype))
    for (const auto& activation : activations(channels_of(*conv), dtype)) {
      check_pair({conv, activation}, input({3, 6, 21}));
      check_pair({conv, activation}, input({6, 21}));
      check_pair({conv, activation}, input({21, 3, 6}).permute({1, 2, 0}));
    }
}

/// Twice the result of LeakyReLU.
struct Doubling : LeakyReLU {
  Tensor forward(const Tensor& x) override { return LeakyReLU::forward(x) * 2.0; }
};
/// A convolution with another forward().
struct Negated : Conv1d {
  using Conv1d::Conv1d;
  Tensor forward(const Tensor& x) override { return -Conv1d::forward(x); }
};

}  // namespace

TEST_CASE("the passes of a list of modules name what is fused") {
  const auto conv = [](std::int64_t dilation, std::int64_t stride = 1) {
    return share(Conv1d(
        {.in_channels = 6, .out_channels = 6, .kernel_size = 3, .stride = stride, .padding = dilation, .dilation = dilation}));
  };
  using Expected = std::vector<std::array<int, 5>>;  // first, length, main, adds, unit
  const auto passes = [](const std::vector<std::shared_ptr<Module>>& modules, bool is_residual) {
    Expected found;
    for (const layers::Pass& pass : layers::passes_of(modules, is_residual))
      found.push_back({static_cast<int>(pass.first), static_cast<int>(pass.length), static_cast<int>(pass.main),
                       pass.adds_residual ? 1 : 0, pass.is_unit ? 1 : 0});
    return found;
  };
  const auto leaky = share(LeakyReLU(0.1)), tanh = share(Tanh()), snake = share(Snake(6)), elu = share(ELU());
  const std::vector<std::shared_ptr<Module>> unit{leaky, conv(3), leaky, conv(1)};
  CHECK(passes(unit, true) == Expected{{0, 4, 1, 1, 1}});
  CHECK(passes(unit, false) == Expected{{0, 3, 1, 0, 0}, {3, 1, 3, 0, 0}});
  CHECK(passes({leaky, conv(3), snake, conv(1)}, true) == Expected{{0, 3, 1, 0, 0}, {3, 1, 3, 1, 0}});
  CHECK(passes({leaky, conv(3, 2), leaky, conv(1)}, true) == Expected{{0, 3, 1, 0, 0}, {3, 1, 3, 1, 0}});
  CHECK(passes({snake, conv(1), tanh, elu}, false) == Expected{{0, 1, 0, 0, 0}, {1, 2, 1, 0, 0}, {3, 1, 3, 0, 0}});
  const auto depthwise = share(Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 3, .padding = 1, .groups = 6}));
  CHECK(passes({snake, depthwise, snake, conv(1)}, true) == Expected{{0, 4, 1, 1, 1}});
  CHECK(passes({snake, conv(1), snake, depthwise}, true) == Expected{{0, 1, 0, 0, 0}, {1, 2, 1, 0, 0}, {3, 1, 3, 1, 0}});
  CHECK(passes({elu, leaky}, true) == Expected{{0, 1, 0, 0, 0}, {1, 1, 1, 0, 0}});
  CHECK(passes({}, true).empty());
}

TEST_CASE("branches of residual units, and the convolution that adds the branches before") {
  const auto conv = [] { return Conv1d({.in_channels = 4, .out_channels = 4, .kernel_size = 3, .padding = 1}); };
  const auto unit = [&] { return Residual(LeakyReLU(0.1), conv(), LeakyReLU(0.1), conv()); };
  const NoGradGuard no_grad;
  Residual last = unit();
  Sequential units(unit(), last), mixed(conv(), last), open(unit(), conv()), none;
  const Module* const second = last.block().modules()[3].get();
  CHECK(layers::adding_convolution(units) == second);
  CHECK(layers::adding_convolution(mixed) == second);
  CHECK(layers::adding_convolution(open) == nullptr);
  CHECK(layers::adding_convolution(none) == nullptr);
  CHECK(layers::is_of_units(units));
  CHECK(layers::is_of_units(last));
  CHECK_FALSE(layers::is_of_units(mixed));
  CHECK_FALSE(layers::is_of_units(open));
  // Without a kernel the result is the branch's own.
  const Tensor x = random_f64({1, 4, 9}), other = random_f64({1, 4, 9});
  units.to(DType::f64);
  const layers::Averaged got = layers::forward_averaged(units, x, {other});
  CHECK_FALSE(got.is_of_kernel);
  CHECK(max_difference(got.y, units(x)) == 0);
}

TEST_CASE("f32: output and all gradients have the bits of one layer after the other") { check_all_pairs(DType::f32); }
TEST_CASE("f64: output and all gradients have the bits of one layer after the other") { check_all_pairs(DType::f64); }
TEST_CASE("f16: output and all gradients have the bits of one layer after the other") { check_all_pairs(DType::f16); }
TEST_CASE("bf16: output and all gradients have the bits of one layer after the other") { check_all_pairs(DType::bf16); }

TEST_CASE("fused pairs: every algorithm") {
  manual_seed(1);
  const auto conv =
      share(ConvTranspose1d({.in_channels = 32, .out_channels = 16, .kernel_size = 4, .stride = 2, .padding = 1}));
  const Tensor x = random_f64({2, 32, 40}, 2).to(DType::f32).to(default_device());
  int ran = 0;
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::tensor_core, Algorithm::gemm, Algorithm::reference}) {
    const AlgorithmGuard guard(algorithm);
    try {
      (void)conv->forward(x);
    } catch (const NotImplemented&) {
      continue;
    }
    ++ran;
    const NoGradGuard no_grad;
    for (const auto& activation : activations(16, DType::f32)) {
      Sequential net;
      net.push_back(conv).push_back(activation);
      CHECK(values(net(x)) == values(activation->forward(conv->forward(x))));
    }
  }
  CHECK(ran > 0);
}

TEST_CASE("fused pairs: long rows, whole and odd, few and many channels") {
  manual_seed(1);
  for (const std::int64_t L : {1000, 1001, 20000})
    for (const std::int64_t channels : {1, 3, 40}) {
      const auto conv = share(Conv1d({.in_channels = 2, .out_channels = channels, .kernel_size = 3, .padding = 1}));
      const Tensor x = random_f64({3, 2, L}, 2).to(DType::f32).to(default_device());
      for (const auto& activation : {share(LeakyReLU(0.2)), share(Tanh())}) check_pair({conv, activation}, x);
    }
}

TEST_CASE("fused pairs: gradients agree with differences") {
  const DeviceGuard on_host(Device::cpu());
  Sequential net(Conv1d({.in_channels = 2, .out_channels = 3, .kernel_size = 3, .padding = 1}), Tanh(),
                 ConvTranspose1d({.in_channels = 3, .out_channels = 2, .kernel_size = 4, .stride = 2, .padding = 1}),
                 LeakyReLU(0.3), Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3}), Snake(2));
  CHECK(layer_gradcheck(net, {2, 2, 6}) == "");
}

TEST_CASE("fused pairs: one activation used twice, nested networks, activations in front") {
  manual_seed(1);
  const auto leaky = share(LeakyReLU(0.1));
  const auto first = share(Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3, .padding = 1}));
  const auto inner = std::make_shared<Sequential>();
  inner->push_back(first).push_back(leaky);
  Sequential net;
  net.push_back(leaky).push_back(first).push_back(leaky).push_back(leaky).push_back(inner).push_back(leaky).push_back(first);
  const Tensor x = random_f64({2, 2, 9}, 2).to(DType::f32).to(default_device());
  Tensor y = x;
  for (const auto& module : {leaky, first, leaky, leaky, first, leaky, leaky, first}) y = module->forward(y);
  CHECK(values(net(x)) == values(y));
  const NoGradGuard no_grad;
  CHECK(values(net(x)) == values(y));
}

TEST_CASE("fused pairs: derived classes keep their own forward, other layers are left alone") {
  manual_seed(1);
  const Tensor x = random_f64({2, 2, 9}, 2).to(DType::f32).to(default_device());
  const auto conv = share(Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3}));
  const auto negated = share(Negated({.in_channels = 2, .out_channels = 2, .kernel_size = 3}));
  const auto doubling = share(Doubling()), leaky = share(LeakyReLU()), sigmoid = share(Sigmoid());
  const auto length = [](const std::shared_ptr<Module>& first, const std::shared_ptr<Module>& second) {
    return layers::pass_length(std::array{first, second}, 0);
  };
  CHECK(length(conv, doubling) == 1);
  CHECK(length(negated, leaky) == 1);
  CHECK(length(conv, sigmoid) == 1);
  CHECK(length(leaky, leaky) == 1);
  CHECK(length(conv, conv) == 1);
  CHECK(length(conv, leaky) == 2);
  {
    const NoGradGuard no_grad;
    CHECK(length(leaky, conv) == 2);
    CHECK(length(leaky, leaky) == 1);
    CHECK(length(sigmoid, conv) == 1);
    CHECK(length(leaky, negated) == 1);
    CHECK(layers::pass_length(std::array{leaky, conv, leaky}, 0) == 3);
    CHECK(layers::pass_length(std::array{leaky, conv, sigmoid}, 0) == 2);
  }
  CHECK(layers::pass_length(std::array{conv, leaky}, 1) == 1);
  check_pair({conv, doubling}, x);
  check_pair({negated, leaky}, x);
}

TEST_CASE("fused pairs: autocast, an empty batch, a channel count that does not fit") {
  manual_seed(1);
  const auto conv = share(Conv1d({.in_channels = 2, .out_channels = 4, .kernel_size = 3, .padding = 1}));
  const Tensor x = random_f64({2, 2, 9}, 2).to(DType::f32).to(default_device());
  {
    const AutocastGuard guard(DType::bf16);
    for (const auto& activation : activations(4, DType::f32)) check_pair({conv, activation}, x);
  }
  for (const auto& activation : activations(4, DType::f32)) {
    Sequential net;
    net.push_back(conv).push_back(activation);
    net.zero_grad();
    const Tensor y = net(Tensor::zeros({0, 2, 9}));
    CHECK(y.shape() == Shape{0, 4, 9});
    sum(y).backward();
    for (const Tensor& parameter : conv->parameters())
      CHECK(max_difference(parameter.grad(), Tensor::zeros_like(parameter)) == 0);
  }
  Sequential wrong;
  wrong.push_back(conv).push_back(Snake(3));
  const NoGradGuard no_grad;
  CHECK_THROWS_WITH_AS((void)wrong(x), doctest::Contains("(C=4), got (3,)"), ShapeError);
}

TEST_CASE("fused pairs: the result is kept for the backward pass, and writing to it is noticed") {
  const auto conv = share(Conv1d({.in_channels = 1, .out_channels = 1, .kernel_size = 1}));
  Sequential net;
  net.push_back(conv).push_back(LeakyReLU());
  Tensor y = net(Tensor::ones({1, 1, 4}));
  y.detach().fill_(0);
  CHECK_THROWS_AS(sum(y).backward(), AutogradError);
}
