#include "layers/streaming/key_value_ring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/linear.hpp"
#include "layers/norm.hpp"
#include "ops/attention.hpp"
#include "ops/elementwise.hpp"
#include "support/stream.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr std::int64_t kHeads = 2;

/// Causal attention of (N, L, C) over a window, with rotated positions.
class Attention : public Module {
 public:
  Attention(std::int64_t channels, std::int64_t window)
      : project_({.in_features = channels, .out_features = 3 * channels}), window_(window) {}
  void visit(Visitor& visitor) override { visitor.module("project", project_); }

  Tensor forward(const Tensor& x) override {
    const Parts parts = parts_of(x, 0);
    return joined_heads(scaled_dot_product_attention(parts.q, parts.k, parts.v, {.causal = true, .window = window_}));
  }
  Tensor forward(const Tensor& x, KeyValueRing& ring) {
    const Parts parts = parts_of(x, ring.positions());
    const KeyValueRing::Seen seen = ring.push(parts.k, parts.v);
    return joined_heads(scaled_dot_product_attention(parts.q, seen.keys, seen.values,
                                                     {.causal = true, .window = ring.context(), .first_key = seen.first_key}));
  }
  std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] std::int64_t window() const { return window_; }

 private:
  struct Parts {
    Tensor q, k, v;  // (N, H, L, D)
  };
  Parts parts_of(const Tensor& x, std::int64_t offset) {
    const Tensor all = project_(x);
    const std::int64_t channels = all.size(2) / 3;
    const auto part = [&](std::int64_t i) {
      const Tensor rows = all.narrow(2, i * channels, channels);
      return rows.reshape({x.size(0), x.size(1), kHeads, channels / kHeads}).transpose(1, 2);
    };
    return {rope(part(0), {.offset = offset}), rope(part(1), {.offset = offset}), part(2)};
  }
  static Tensor joined_heads(const Tensor& y) {
    return y.transpose(1, 2).reshape({y.size(0), y.size(2), y.size(1) * y.size(3)});
  }

  Linear project_;
  std::int64_t window_;
};

class AttentionStream : public ModuleStream {
 public:
  explicit AttentionStream(Attention& attention) : attention_(attention), ring_(attention.window()) {}
  Tensor push(const Tensor& x, bool) override {
    return layers::length_last(attention_.forward(layers::length_second(x), ring_));
  }
  void reset() override { ring_.reset(); }
  [[nodiscard]] Span inputs_of(Span outputs) const override { return {outputs.first - ring_.context() + 1, outputs.last}; }
  [[nodiscard]] Rate rate() const override { return {}; }
  [[nodiscard]] Layout layout() const override { return Layout::channels_last; }

 private:
  Attention& attention_;
  KeyValueRing ring_;
};

std::unique_ptr<ModuleStream> Attention::make_stream() { return std::make_unique<AttentionStream>(*this); }

Tensor rows(std::int64_t first, std::int64_t count) {
  return Tensor::arange(static_cast<double>(first), static_cast<double>(first + count), 1.0, {DType::f32})
      .reshape({1, 1, count, 1});
}

}  // namespace

TEST_CASE("ring of keys and values: what the newest queries see, and the number of the first") {
  KeyValueRing ring(4);
  const auto push = [&](std::int64_t count) {
    const std::int64_t first = ring.positions();
    return ring.push(rows(first, count), mul(rows(first, count), 10));
  };
  const auto check = [](const KeyValueRing::Seen& seen, std::int64_t first, std::int64_t last) {
    CHECK(seen.first_key == first);
    CHECK(seen.keys.to_vector<float>() == rows(first, last + 1 - first).to_vector<float>());
    CHECK(seen.values.to_vector<float>() == mul(rows(first, last + 1 - first), 10).to_vector<float>());
  };
  check(push(2), 0, 1);
  check(push(1), 0, 2);
  check(push(2), 0, 4);
  check(push(1), 2, 5);
  check(push(0), 3, 5);
  check(push(9), 3, 14);
  CHECK(ring.positions() == 15);
  ring.reset();
  CHECK(ring.positions() == 0);
  check(push(1), 0, 0);
  KeyValueRing alone(1);
  for (std::int64_t t = 0; t < 3; ++t) check(alone.push(rows(t, 1), mul(rows(t, 1), 10)), t, t);
}

TEST_CASE("ring of keys and values: errors leave it as it was") {
  CHECK_THROWS_WITH_AS(KeyValueRing(0), "KeyValueRing: expected context >= 1, got 0", ShapeError);
  KeyValueRing ring(4);
  (void)ring.push(rows(0, 2), rows(0, 2));
  CHECK(error_of<ShapeError>([&] { return ring.push(rows(2, 2), rows(2, 3)).first_key; }) ==
        "KeyValueRing: expected keys (N, H, n, D) and values (N, H, n, E), got (1, 1, 2, 1) and (1, 1, 3, 1)");
  CHECK_THROWS_AS((void)ring.push(rows(2, 1), rows(2, 1).expand({2, 1, 1, 1})), ShapeError);
  CHECK(ring.positions() == 2);
  CHECK(ring.push(rows(2, 1), rows(2, 1)).keys.to_vector<float>() == std::vector<float>{0, 1, 2});
}

TEST_CASE("ring of keys and values: moved into rows and out again it holds the same") {
  constexpr std::int64_t kContext = 6, kAdded = 3, kRows = kContext + kAdded - 1;
  const KeyValueRing::RowsOptions options{.added = kAdded, .like = {DType::f32, default_device()}};
  for (const std::int64_t before : {0, 1, 5, 11})
    for (const std::int64_t count : {0, 1, 2, 7, 30}) {
      CAPTURE(before);
      CAPTURE(count);
      KeyValueRing ring(kContext);
      if (before > 0) static_cast<void>(ring.push(rows(0, before), mul(rows(0, before), 10)));
      for (std::int64_t p = before; p < before + count; ++p) {
        const KeyValueRing::Rows held = ring.rows(options);
        REQUIRE(held.keys.shape() == Shape{1, 1, kRows, 1});
        held.keys.narrow(2, p % kRows, 1).copy_(rows(p, 1));
        held.values.narrow(2, p % kRows, 1).copy_(mul(rows(p, 1), 10));
        ring.count_on(1);
      }
      const std::int64_t all = before + count;
      CHECK(ring.positions() == all);
      CHECK(ring.next_position(default_device()).to_vector<std::int64_t>() == std::vector<std::int64_t>{all});
      const KeyValueRing::Seen seen = ring.push(rows(all, 2), mul(rows(all, 2), 10));
      const std::int64_t first = std::max<std::int64_t>(0, all - kContext + 1);
      CHECK(seen.first_key == first);
      CHECK(seen.keys.to_vector<float>() == rows(first, all + 2 - first).to_vector<float>());
      CHECK(seen.values.to_vector<float>() == mul(rows(first, all + 2 - first), 10).to_vector<float>());
      CHECK(ring.rows(options).position.to_vector<std::int64_t>() == std::vector<std::int64_t>{all + 2, 0});
      ring.reset();
      CHECK(ring.rows(options).position.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0});
    }
}

TEST_CASE("ring of keys and values: rows that do not fit what was pushed leave it as it was") {
  KeyValueRing ring(4);
  static_cast<void>(ring.push(rows(0, 2), rows(0, 2)));
  const TensorOptions like{DType::f32, default_device()};
  CHECK_THROWS_AS(static_cast<void>(ring.rows({.samples = 2, .like = like})), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(ring.rows({.head_size = 3, .like = like})), ShapeError);
  CHECK(error_of<DTypeError>([&] {
          return ring.rows({.like = {DType::f16, default_device()}}).keys;
        }) == "KeyValueRing: expected keys and values of the dtype before, f32, got f16");
  CHECK_THROWS_AS(static_cast<void>(ring.rows({.like = {DType::f32, Device::cuda(7)}})), DeviceError);
  CHECK(ring.push(rows(2, 1), rows(2, 1)).keys.to_vector<float>() == std::vector<float>{0, 1, 2});
}

TEST_CASE("causal attention over a window in pieces, with rotated positions, has the bits of the whole") {
  manual_seed(3);
  for (const std::int64_t window : {1, 5, 72, 250}) {
    CAPTURE(window);
    ChannelsLast net(Attention(8, window));
    check_stream(net, {1, 8, 600});
  }
}

TEST_CASE("a transformer between convolutions in pieces") {
  manual_seed(4);
  const auto layer = [] {
    return Sequential(Residual(LayerNorm({.normalized_shape = 8}), Attention(8, 20), LayerScale({.channels = 8, .init = 0.5})),
                      Residual(RMSNorm({.normalized_shape = 8}), Linear({.in_features = 8, .out_features = 32}), GELU(),
                               Linear({.in_features = 32, .out_features = 8})));
  };
  Sequential net(Conv1d({.in_channels = 5, .out_channels = 8, .kernel_size = 3, .padding = {2, 0}}),
                 ChannelsLast(layer(), layer()), Conv1d({.in_channels = 8, .out_channels = 3, .kernel_size = 3, .padding = 1}));
  check_stream(net, {2, 5, 130});
  CHECK(receptive_field(net).left == 2 + 2 * 19 + 1);
  CHECK(receptive_field(net).right == 1);
}
