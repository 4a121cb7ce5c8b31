#include "networks/blocks/causal_attention.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/no_grad.hpp"
#include "conv/length_invariant.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/norm.hpp"
#include "layers/streaming/key_value_ring.hpp"
#include "ops/attention.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/softmax.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

CausalAttention::Options joined(std::int64_t window) {
  return {.channels = 8,
          .heads = 2,
          .key_heads = 2,
          .head_size = 4,
          .window = window,
          .interleaved = true,
          .inputs = {"in"},
          .output = "out"};
}

/// Three projections with biases; two heads share the keys of one.
CausalAttention::Options apart(std::int64_t window) {
  return {.channels = 8,
          .heads = 4,
          .key_heads = 2,
          .head_size = 6,
          .window = window,
          .rope_base = 100,
          .bias = true,
          .inputs = {"q", "k", "v"},
          .output = "o"};
}

/// 0 where query q sees key k, else -infinity. `oldest`: for each query its first key.
Tensor mask(std::int64_t length, std::int64_t window, const std::vector<std::int64_t>& oldest) {
  std::vector<double> values;
  for (std::int64_t q = 0; q < length; ++q)
    for (std::int64_t k = 0; k < length; ++k) {
      const bool sees = k <= q && (window == 0 || k > q - window) && k >= oldest[static_cast<std::size_t>(q)];
      values.push_back(sees ? 0 : -std::numeric_limits<double>::infinity());
    }
  return Tensor::from_vector(values, {length, length});
}

/// One head at a time, with plain products and a mask. `oldest`: for each query its first key.
Tensor plain(CausalAttention& attention, const Tensor& x, const std::vector<std::int64_t>& oldest) {
  const CausalAttention::Options& options = attention.options();
  const NamedTensors state = attention.state_dict();
  const auto projected = [&](const Tensor& input, const std::string& name) {
    Tensor weight, bias;
    for (const auto& [key, tensor] : state) {
      if (key == name + ".weight") weight = tensor;
      if (key == name + ".bias") bias = tensor;
    }
    return linear(input, weight, bias);
  };
  std::vector<Tensor> projections;
  for (const std::string& name : options.inputs) projections.push_back(projected(x, name));
  const Tensor all = cat(projections, 2);
  std::vector<Tensor> heads;
  for (std::int64_t h = 0; h < options.heads; ++h) {
    const std::int64_t D = options.head_size, group = h / (options.heads / options.key_heads);
    const auto part = [&](std::int64_t number) { return all.narrow(2, number * D, D); };
    const RopeOptions place{.base = options.rope_base, .interleaved = options.interleaved};
    const Tensor q = rope(part(h), place), k = rope(part(options.heads + group), place);
    const Tensor scores = matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(D));
    const Tensor shares = softmax(scores + mask(x.size(1), options.window, oldest), -1);
    heads.push_back(matmul(shares, part(options.heads + options.key_heads + group)));
  }
  return projected(cat(heads, 2), options.output);
}

std::vector<std::int64_t> none_gone(std::int64_t length) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(length), 0);
}

}  // namespace

TEST_CASE("attention is the formula, head by head") {
  manual_seed(1);
  for (const std::int64_t window : {0, 1, 3, 100})
    for (const CausalAttention::Options& options : {joined(window), apart(window)}) {
      CAPTURE(window);
      CausalAttention attention(options);
      attention.to(DType::f64);
      const Tensor x = random_f64({2, 9, 8});
      CHECK(max_difference(attention(x), plain(attention, x, none_gone(9))) < kDoubleRounding);
    }
}

TEST_CASE("attention without positions") {
  manual_seed(2);
  CausalAttention::Options options = joined(3);
  options.rotates = false;
  CausalAttention attention(options);
  attention.to(DType::f64);
  // The last position sees three inputs; the order of those before it makes no difference.
  const Tensor x = random_f64({1, 3, 8}), y = cat({x.narrow(1, 1, 1), x.narrow(1, 0, 1), x.narrow(1, 2, 1)}, 1);
  CHECK(max_difference(attention(x).narrow(1, 2, 1), attention(y).narrow(1, 2, 1)) < kDoubleRounding);
  CHECK(max_difference(attention(x).narrow(1, 1, 1), attention(y).narrow(1, 1, 1)) > 1e-3);
}

TEST_CASE("gradients of attention") {
  manual_seed(3);
  CausalAttention first(joined(3)), second(apart(0));
  CHECK(layer_gradcheck(first, {2, 5, 8}) == "");
  CHECK(layer_gradcheck(second, {1, 5, 8}) == "");
}

TEST_CASE("attention in pieces has the bits of the whole") {
  manual_seed(4);
  for (const std::int64_t window : {1, 5, 40}) {
    CAPTURE(window);
    ChannelsLast first{CausalAttention(joined(window))}, second{CausalAttention(apart(window))};
    check_stream(first, {2, 8, 150});
    check_stream(second, {1, 8, 150});
    CHECK(receptive_field(first).left == window - 1);
    CHECK(receptive_field(first).is_causal());
  }
}

TEST_CASE("a ring of the window's size holds the newest keys of a push") {
  manual_seed(5);
  CausalAttention::Options options = joined(5);
  options.sees_only_newest = true;
  CausalAttention attention(options);
  attention.to(DType::f64);
  const NoGradGuard no_grad;
  const Tensor x = random_f64({2, 12, 8});
  KeyValueRing ring(5);
  std::vector<Tensor> pieces;
  std::vector<std::int64_t> oldest;
  std::int64_t begin = 0;
  for (const std::int64_t count : {2, 3, 1, 4, 2}) {
    pieces.push_back(attention.forward(x.narrow(1, begin, count), ring));
    begin += count;
    oldest.insert(oldest.end(), static_cast<std::size_t>(count), begin - 5);
  }
  CHECK(max_difference(cat(pieces, 1), plain(attention, x, oldest)) < kDoubleRounding);
  CHECK(max_difference(cat(pieces, 1), attention(x)) > 1e-3);
  ring.reset();
  CHECK(error_of<ShapeError>([&] { return attention.forward(x.narrow(1, 0, 6), ring); }) ==
        "attention: expected at most 5 positions in a push, the context, got 6");
  CHECK(ring.positions() == 0);
}

TEST_CASE("attention without a window cannot be streamed") {
  ChannelsLast net{CausalAttention(joined(0))};
  CHECK(error_of<NotImplemented>([&] { return receptive_field(net).left; }) ==
        "stream: attention without a context keeps all of its past");
}

TEST_CASE("causal attention: under a LengthInvariantGuard a stream has the bits of the whole on every device") {
  manual_seed(4);
  ChannelsLast net(
      LayerNorm({.normalized_shape = 24}),
      CausalAttention(
          {.channels = 24, .heads = 4, .key_heads = 2, .head_size = 8, .window = 20, .inputs = {"q", "k", "v"}, .output = "o"}),
      RMSNorm({.normalized_shape = 24}));
  const NoGradGuard no_grad;
  const LengthInvariantGuard guard;
  for (const DType dtype : {DType::f32, DType::f64}) {
    net.to(dtype);
    const Tensor x = random_f64({2, 24, 70}, 6).to(dtype);
    const Tensor whole = net(x);
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1}, {3}, {64}, {5, 1, 17, 2}}) {
      CAPTURE(sizes.front());
      CHECK(max_difference(streamed(net, x, sizes), whole) == 0);
    }
  }
}
