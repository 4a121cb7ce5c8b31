#include "layers/containers/channels_last.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/linear.hpp"
#include "layers/norm.hpp"
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
