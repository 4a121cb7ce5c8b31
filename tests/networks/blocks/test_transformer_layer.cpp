#include "networks/blocks/transformer_layer.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "autograd/no_grad.hpp"
#include "conv/length_invariant.hpp"
#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/residual.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

TransformerLayer::Options options_of(std::int64_t window, std::int64_t head_size = 16, std::int64_t key_heads = 4) {
  return {.attention = {.channels = 48,
                        .heads = 4,
                        .key_heads = key_heads,
                        .head_size = head_size,
                        .window = window,
                        .interleaved = head_size != 8,
                        .inputs = {"in"},
                        .output = "out"},
          .hidden = 80,
          .layer_scale = 0.5};
}

Linear unbiased(std::int64_t in, std::int64_t out) { return Linear({.in_features = in, .out_features = out, .bias = false}); }
LayerNorm norm() { return LayerNorm({.normalized_shape = 48}); }
LayerScale scale() { return LayerScale({.channels = 48, .init = 0.5, .name = "scale"}); }

/// The same of layers one after another.
Sequential plain(const TransformerLayer::Options& options) {
  return Sequential(
      named("", Residual({.name = ""}, named("norm1", norm()), named("self_attn", CausalAttention(options.attention)),
                         named("layer_scale_1", scale()))),
      named("", Residual({.name = ""}, named("norm2", norm()), named("linear1", unbiased(48, 80)), GELU(),
                         named("linear2", unbiased(80, 48)), named("layer_scale_2", scale()))));
}

/// Adds noise to every parameter, so that the norms' weights and the scales differ.
void shake(Module& module) {
  const NoGradGuard no_grad;
  std::uint64_t seed = 40;
  for (Tensor& parameter : module.parameters())
    parameter.copy_(parameter + random_f64(parameter.shape(), ++seed).to(parameter.dtype()) * 0.1);
}

}  // namespace

TEST_CASE("a transformer layer is its layers one after another") {
  manual_seed(1);
  const NoGradGuard no_grad;
  for (const TransformerLayer::Options& options :
       {options_of(0), options_of(5, 8), options_of(3, 16, 2), options_of(4, 6, 1)}) {
    CAPTURE(options.attention.head_size);
    TransformerLayer layer(options);
    shake(layer);
    Sequential layers = plain(options);
    layers.load_state_dict(layer.state_dict());
    const NamedTensors state = layer.state_dict(), expected = layers.state_dict();
    REQUIRE(state.size() == 10);
    for (std::size_t i = 0; i < state.size(); ++i) CHECK(state[i].first == expected[i].first);
    for (const std::int64_t length : {1, 2, 8, 13}) {
      CAPTURE(length);
      const Tensor x = random_f64({1, length, 48});
      layer.to(DType::f64), layers.to(DType::f64);
      const Tensor wide = layers(x);
      CHECK(max_difference(layer(x), wide) == 0);
      for (const auto& allowed : {std::pair{DType::f32, kFloatSum}, std::pair{DType::f16, 4 * kHalfRounding},
                                  std::pair{DType::bf16, 4 * kBFloat16Rounding}}) {
        CAPTURE(name_of(allowed.first));
        TransformerLayer low(options);
        low.load_state_dict(state);
        low.to(allowed.first);
        CHECK(max_difference(low(x.to(allowed.first)), wide) <= allowed.second);
      }
    }
  }
}

TEST_CASE("a transformer layer without scales, and its gradients") {
  manual_seed(2);
  TransformerLayer::Options options{
      .attention =
          {.channels = 4, .heads = 2, .key_heads = 1, .head_size = 2, .window = 2, .inputs = {"q", "k", "v"}, .output = "o"},
      .hidden = 3};
  TransformerLayer layer(options);
  CHECK(layer.state_dict().size() == 10);
  CHECK(layer_gradcheck(layer, {2, 3, 4}) == "");
  options.layer_scale = 0.3;
  TransformerLayer scaled(options);
  CHECK(scaled.state_dict().size() == 12);
  CHECK(layer_gradcheck(scaled, {1, 3, 4}) == "");
}

TEST_CASE("a transformer layer in pieces has the results of the whole") {
  manual_seed(3);
  for (const TransformerLayer::Options& options : {options_of(1), options_of(5, 8), options_of(40, 16, 2), options_of(20, 6)}) {
    CAPTURE(options.attention.window);
    ChannelsLast net{TransformerLayer(options), TransformerLayer(options)};
    check_stream(net, {2, 48, 150});
    check_stream(net, {1, 48, 150});
    CHECK(receptive_field(net).left == 2 * (options.attention.window - 1));
    CHECK(receptive_field(net).is_causal());
  }
  ChannelsLast endless{TransformerLayer(options_of(0))};
  CHECK(error_of<NotImplemented>([&] { return receptive_field(endless).left; }) ==
        "stream: attention without a context keeps all of its past");
}

TEST_CASE("a transformer layer in pieces of 16 bits agrees with f64, and begins again after reset()") {
  manual_seed(4);
  const NoGradGuard no_grad;
  const Tensor x = random_f64({2, 48, 60}, 5);
  for (const auto& allowed : {std::pair{DType::f16, 4 * kHalfRounding}, std::pair{DType::bf16, 4 * kBFloat16Rounding}}) {
    CAPTURE(name_of(allowed.first));
    ChannelsLast net{TransformerLayer(options_of(20))};
    net.to(allowed.first);
    const Tensor low = x.to(allowed.first);
    std::vector<Tensor> results;
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1}, {2}, {7, 12, 3, 2, 2}})
      for (const bool recorded : {false, true}) results.push_back(streamed(net, low, sizes, recorded));
    Stream stream(net);
    static_cast<void>(stream.push(low.narrow(2, 0, 2)));
    stream.reset();
    results.push_back(cat({stream.push(low.narrow(2, 0, 1)), stream.push(low.narrow(2, 1, 59))}, 2));
    net.to(DType::f64);
    const Tensor wide = net(low.to(DType::f64));
    for (const Tensor& result : results) CHECK(max_difference(result, wide) <= allowed.second);
  }
}

TEST_CASE("a transformer layer whose queries see the newest keys of their push") {
  manual_seed(5);
  const NoGradGuard no_grad;
  TransformerLayer::Options options = options_of(9);
  options.attention.sees_only_newest = true;
  TransformerLayer layer(options);
  const NamedTensors state = layer.state_dict();
  Sequential layers = plain(options);
  layers.load_state_dict(state);
  const auto pushed = [&](DType dtype) {
    layer.to(dtype);
    KeyValueRing ring(9);
    std::vector<Tensor> pieces;
    std::int64_t begin = 0;
    const Tensor x = random_f64({2, 40, 48}).to(dtype);
    for (const std::int64_t count : {2, 3, 1, 8, 9, 4, 8, 5}) {
      pieces.push_back(layer.forward(x.narrow(1, begin, count), &ring));
      begin += count;
    }
    CHECK(error_of<ShapeError>([&] { return layer.forward(x.narrow(1, 0, 10), &ring); }) ==
          "attention: expected at most 9 positions in a push, the context, got 10");
    return cat(pieces, 1);
  };
  const Tensor wide = pushed(DType::f64);
  CHECK(max_difference(pushed(DType::f32), wide) <= kFloatSum);
  CHECK(max_difference(wide, layer(random_f64({2, 40, 48}).to(DType::f32))) > 1e-3);
}

TEST_CASE("transformer layers: under a LengthInvariantGuard a stream has the bits of the whole on every device") {
  manual_seed(6);
  ChannelsLast net{TransformerLayer(options_of(20)), TransformerLayer(options_of(20, 8, 2))};
  const NoGradGuard no_grad;
  const LengthInvariantGuard guard;
  for (const DType dtype : {DType::f32, DType::f16}) {
    net.to(dtype);
    const Tensor x = random_f64({2, 48, 70}, 6).to(dtype), whole = net(x);
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1}, {3}, {64}, {5, 1, 17, 2}})
      CHECK(max_difference(streamed(net, x, sizes), whole) == 0);
  }
}
