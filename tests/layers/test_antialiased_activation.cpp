#include "layers/antialiased_activation.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/upsample.hpp"
#include "ops/antialias.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
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
  CHECK(max_difference(net(x), antialias(x, act, state[2].second, state[3].second)) <= kDoubleRounding);
  CHECK(max_difference(net(x), antialias(x, act, state[3].second, state[2].second)) > kFloatSum);
}

TEST_CASE("antialiased activation: Snake and SnakeBeta, linear and log scale, in one pass; others step by step") {
  // Only the class itself is fused, because a derived class may compute something else.
  struct Other : SnakeBeta {
    using SnakeBeta::SnakeBeta;
    Tensor forward(const Tensor& x) override { return SnakeBeta::forward(x) + 1.0; }
  };
  const Tensor x = random_f64({2, 3, 40}), f = kaiser_sinc_filter(0.25, 0.3, 12, {.dtype = DType::f64});
  const auto check = [&](auto activation) {
    activation.to(DType::f64);
    std::uint64_t seed = 5;
    for (Tensor parameter : activation.parameters()) parameter.detach().copy_(uniform_f64(parameter.shape(), 0.3, 1, ++seed));
    AntialiasedActivation net(activation, {.dtype = DType::f64});
    const auto step_by_step = [&](const Tensor& y) { return net.activation()(y); };
    CHECK(max_difference(net(x), antialias(x, step_by_step, f, f)) <= kDoubleRounding);
    CHECK(layer_gradcheck(net, {2, 3, 7}) == "");
  };
  for (const bool logscale : {false, true}) {
    check(Snake(3, {.alpha_logscale = logscale}));
    check(SnakeBeta(3, {.alpha_logscale = logscale}));
    check(Other(3, SnakeOptions{.alpha_logscale = logscale}));
  }
  check(GELU());
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

TEST_CASE("antialiased activation in pieces: padding at the true ends alone") {
  manual_seed(10);
  AntialiasedActivation leaky(LeakyReLU(0.1));
  CHECK(receptive_field(leaky).left == 5);
  CHECK(receptive_field(leaky).right == 5);
  for (const std::int64_t length : {1, 2, 5, 6, 11, 70}) {
    check_stream(leaky, {2, 3, length});
    AntialiasedActivation snake(Snake(3, {.alpha = 0.8}));
    check_stream(snake, {2, 3, length});
  }
  AntialiasedActivation across_tasks(SnakeBeta(1, {.alpha = 1.3}));
  check_stream(across_tasks, {1, 1, 2100});
  const auto block = [](std::int64_t kernel_size, std::int64_t dilation) {
    return Residual(AntialiasedActivation(SnakeBeta(4, {.alpha_logscale = true})),
                    Conv1d({.in_channels = 4,
                            .out_channels = 4,
                            .kernel_size = kernel_size,
                            .padding = dilation * (kernel_size / 2),
                            .dilation = dilation}),
                    AntialiasedActivation(SnakeBeta(4)),
                    Conv1d({.in_channels = 4, .out_channels = 4, .kernel_size = kernel_size, .padding = kernel_size / 2}));
  };
  Sequential net(ConvTranspose1d({.in_channels = 2, .out_channels = 4, .kernel_size = 8, .stride = 4, .padding = 2}),
                 block(3, 3), block(7, 1), AntialiasedActivation(Tanh()),
                 Conv1d({.in_channels = 4, .out_channels = 1, .kernel_size = 3}));
  check_stream(net, {2, 2, 60});
}

TEST_CASE("antialiased activation: what it depends on, and activations that it cannot stream") {
  AntialiasedActivation net(Tanh(), {.dtype = DType::f64});
  const Tensor x = random_f64({1, 1, 40});
  const Tensor changed = x.clone();
  changed.narrow(2, 20, 1).fill_(9);
  const std::vector<double> before = net(x).to_vector<double>(), after = net(changed).to_vector<double>();
  for (std::size_t t = 0; t < before.size(); ++t) CHECK((before[t] != after[t]) == (t >= 15 && t <= 25));
  const auto refusal = [](auto act) { return error_of<NotImplemented>([&] { return Stream(act).latency(); }); };
  CHECK(refusal(AntialiasedActivation(Conv1d({.in_channels = 1, .out_channels = 1, .kernel_size = 3, .padding = 1}))) ==
        "stream: expected an AntialiasedActivation of a pointwise module, got polyphase::Conv1d");
  CHECK(refusal(AntialiasedActivation(Upsample({.scale_factor = 2}))).find("pointwise module") != std::string::npos);
  CHECK(refusal(AntialiasedActivation(GLU())).find("polyphase::GLU takes (N, L, C)") != std::string::npos);
}
