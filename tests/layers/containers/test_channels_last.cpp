#include "layers/containers/channels_last.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/linear.hpp"
#include "layers/norm.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Linear linear(std::int64_t in, std::int64_t out) { return Linear({.in_features = in, .out_features = out}); }

// ConvNeXt's block of Vocos, with its names.
Residual convnext(std::int64_t channels) {
  return Residual(
      {.name = ""},
      named("dwconv",
            Conv1d({.in_channels = channels, .out_channels = channels, .kernel_size = 7, .padding = 3, .groups = channels})),
      named("", ChannelsLast(named("norm", LayerNorm({.normalized_shape = channels, .epsilon = 1e-6})),
                             named("pwconv1", linear(channels, 3 * channels)), GELU(),
                             named("pwconv2", linear(3 * channels, channels)),
                             named("", LayerScale({.channels = channels, .init = 0.3})))));
}

}  // namespace

TEST_CASE("channels last: each position's channels are a row") {
  manual_seed(1);
  ChannelsLast net(linear(3, 5), Tanh(), linear(5, 4));
  net.to(DType::f64);
  const Tensor x = random_f64({2, 3, 6}), y = net(x);
  REQUIRE(y.shape() == Shape{2, 4, 6});
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t t = 0; t < 6; ++t) {
      const Tensor row = net[2](net[1](net[0](x.select(0, n).select(1, t).contiguous())));
      CHECK(max_difference(y.select(0, n).select(1, t), row) <= kDoubleRounding);
    }
  CHECK(max_difference(ChannelsLast()(x), x) == 0);
  CHECK(layer_gradcheck(net, {2, 3, 4}) == "");
}

TEST_CASE("channels last: ranks other than 3, names, what it refuses") {
  struct Shapes : PlainModule {
    Shape seen;
    Tensor forward(const Tensor& x) override { return seen = x.shape(), x; }
  };
  for (const auto& [outside, inside] :
       {std::pair<Shape, Shape>{{2, 7}, {2, 7}}, {{2, 3, 7}, {2, 7, 3}}, {{2, 3, 4, 7}, {2, 7, 3, 4}}}) {
    ChannelsLast net{Shapes()};
    const Tensor x = random_f64(outside);
    CHECK(max_difference(net(x), x) == 0);
    CHECK(dynamic_cast<Shapes&>(net[0]).seen == inside);
  }
  Residual block = convnext(4);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : block.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"dwconv.weight", "dwconv.bias", "norm.weight", "norm.bias", "pwconv1.weight",
                                          "pwconv1.bias", "pwconv2.weight", "pwconv2.bias", "gamma"});
  CHECK(error_of<ShapeError>([] { return ChannelsLast()(random_f64({3})); }) ==
        "ChannelsLast: expected x (N, ..., L), got (3,)");
}

TEST_CASE("channels last in pieces, between convolutions") {
  manual_seed(2);
  ChannelsLast alone(linear(6, 9), GELU(), linear(9, 4));
  check_stream(alone, {2, 6, 45});
  Sequential net(convnext(6), ChannelsLast(RMSNorm({.normalized_shape = 6}), linear(6, 4)), Sequential(SiLU()), convnext(4),
                 Conv1d({.in_channels = 4, .out_channels = 2, .kernel_size = 3, .stride = 2}));
  check_stream(net, {2, 6, 70});
  CHECK(receptive_field(net).right == 8);
  Sequential nested(ChannelsLast(Residual(linear(6, 6), Sequential(LayerNorm({.normalized_shape = 6})))));
  check_stream(nested, {1, 6, 45});
}

TEST_CASE("a stream refuses modules of the other layout") {
  const auto refusal = [](auto net) { return error_of<NotImplemented>([&] { return Stream(net).latency(); }); };
  CHECK(refusal(linear(4, 4)) ==
        "stream: polyphase::Linear takes (N, L, C) where it gets (N, C, L); ChannelsLast goes between them");
  const Conv1d conv({.in_channels = 4, .out_channels = 4, .kernel_size = 3});
  CHECK(refusal(ChannelsLast(linear(4, 4), conv)) ==
        "stream: polyphase::Conv1d takes (N, C, L) where it gets (N, L, C); ChannelsLast goes between them");
  CHECK(refusal(Sequential(ReLU(), conv, linear(4, 4))).find("polyphase::Linear takes (N, L, C)") != std::string::npos);
  CHECK(refusal(ChannelsLast(ReLU(), ChannelsLast(linear(4, 4)))).find("polyphase::ChannelsLast takes (N, C, L)") !=
        std::string::npos);
  CHECK(refusal(Residual(linear(4, 4))).find("polyphase::Residual takes (N, L, C)") != std::string::npos);
}

TEST_CASE("modules of either layout compute (N, C, L) as they compute (N, L, C)") {
  manual_seed(3);
  const auto check = [](auto layer) {
    layer.to(DType::f64);
    auto& module = static_cast<Module&>(layer);
    auto& either = static_cast<layers::EitherLayout&>(layer);
    const Tensor x = random_f64({2, 5, 70});
    const Tensor expected = module.forward(x.transpose(1, 2)).transpose(1, 2);
    CHECK(max_difference(either.forward_channels_first(x), expected) <= 10 * kDoubleSum);
    // What forward_channels_first() refuses has other channels.
    CHECK(error_of<ShapeError>([&] { return either.forward_channels_first(random_f64({2, 6, 5})); }) != "");
  };
  check(linear(5, 7));
  check(LayerNorm({.normalized_shape = 5}));
  check(LayerScale({.channels = 5, .init = 0.3}));
  check(LayerScale({.channels = 5, .init = 0.3, .dim = 2}));
  LayerScale along({.channels = 70, .init = 0.3, .dim = 1, .dtype = DType::f64});
  CHECK(max_difference(along.forward_channels_first(random_f64({2, 5, 70})), random_f64({2, 5, 70}) * 0.3) == 0);
}

TEST_CASE("channels last on the test's device: long inputs have the results and gradients of f64") {
  manual_seed(4);
  Residual net = convnext(24);
  ChannelsLast mixed(linear(24, 40), SiLU(), RMSNorm({.normalized_shape = 40}), linear(40, 24));  // RMSNorm has one layout
  for (const std::int64_t length : {63, 64, 200, 2100}) {
    CAPTURE(length);
    const auto results = [&](Module& module, Device device, DType dtype) {
      module.to(device);
      module.to(dtype);
      module.zero_grad();
      Tensor x = random_f64({2, 24, length}, 5).to(dtype).to(device);
      x.set_requires_grad(true);
      const Tensor y = module.forward(x);
      y.backward(random_f64({2, 24, length}, 6).to(dtype).to(device));
      std::vector<Tensor> all{y.detach().contiguous().to(Device::cpu()), x.grad().to(Device::cpu())};
      for (const Tensor& parameter : module.parameters()) all.push_back(parameter.grad().to(Device::cpu()));
      return all;
    };
    for (Module* module : {static_cast<Module*>(&net), static_cast<Module*>(&mixed)}) {
      const std::vector<Tensor> got = results(*module, default_device(), DType::f32);
      const std::vector<Tensor> expected = results(*module, Device::cpu(), DType::f64);
      for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(max_difference(got[i], expected[i]) <= 2e-5 * max(abs(expected[i])).item<double>());
      }
    }
  }
}
