#include "networks/blocks/local_attention.hpp"

#include <cmath>
#include <vector>

#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/attention.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kHead = 64;  // channels

Linear without_bias(std::int64_t in, std::int64_t out) {
  return Linear({.in_features = in, .out_features = out, .bias = false});
}

Tensor frequencies() {
  std::vector<float> values(kHead / 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(kHead)));
  return Tensor::from_vector(values, {kHead / 2}, default_device());
}

class WindowStream : public ModuleStream {
 public:
  WindowStream(LocalAttention& attention, std::int64_t window) : attention_(attention), window_(window) {}

  [[nodiscard]] Tensor push(const Tensor& x, bool last) override {
    const Tensor all = held_.followed_by(x);
    // What is left at the end is no whole window: forward() says so.
    const std::int64_t ready = last ? all.size(2) : all.size(2) / window_ * window_;
    held_.keep(all.narrow(2, ready, all.size(2) - ready));
    return ready == 0 ? x.narrow(2, 0, 0) : attention_.forward(all.narrow(2, 0, ready));
  }
  void reset() override { held_.clear(); }
  [[nodiscard]] Span inputs_of(Span outputs) const override {
    const auto window = [this](std::int64_t t) { return t >= 0 ? t / window_ : -((-t + window_ - 1) / window_); };
    return {window(outputs.first) * window_, (window(outputs.last) + 1) * window_ - 1};
  }
  [[nodiscard]] Rate rate() const override { return {}; }
  [[nodiscard]] std::int64_t period() const override { return window_; }

 private:
  LocalAttention& attention_;
  std::int64_t window_;
  layers::HeldPositions held_;
};

}  // namespace

LocalAttention::LocalAttention(std::int64_t channels, std::int64_t window)
    : channels_(channels),
      window_(window),
      norm_({.normalized_shape = channels}),
      to_qkv_(without_bias(channels, 3 * channels)),
      to_out_(without_bias(channels, channels)),
      inv_freq_(frequencies()) {
  layers::require_divisible("LocalAttention", "channels", channels, "the size of a head", kHead);
  layers::require_at_least("LocalAttention", "window", window, 1);
}

void LocalAttention::visit(Visitor& visitor) {
  visitor.module("norm", norm_);
  visitor.module("to_qkv", to_qkv_);
  visitor.buffer("rel_pos.inv_freq", inv_freq_);
  visitor.module("to_out", to_out_);
}

// (N, L, C) -> (N*windows, heads, window, 64)
Tensor LocalAttention::heads_of(const Tensor& rows) const {
  return rows.reshape({-1, window_, channels_ / kHead, kHead}).permute({0, 2, 1, 3});
}

Tensor LocalAttention::forward(const Tensor& x) {
  require<ShapeError>(x.rank() == 3 && x.size(1) == channels_, "LocalAttention: expected x (N, ", channels_, ", L), got ",
                      x.shape());
  require<ShapeError>(x.size(2) % window_ == 0, "LocalAttention: expected a multiple of ", window_, " positions, got ",
                      x.size(2));
  const Tensor qkv = to_qkv_(norm_(x.transpose(1, 2)));
  const auto part = [&](std::int64_t i) { return heads_of(qkv.narrow(2, i * channels_, channels_)); };
  // The stored frequencies, unless 16 bits have taken their digits.
  RopeOptions place;
  if (size_of(inv_freq_.dtype()) >= size_of(DType::f32)) place.inv_freq = inv_freq_;
  const Tensor y = scaled_dot_product_attention(rope(part(0), place), rope(part(1), place), part(2));
  return x + to_out_(y.permute({0, 2, 1, 3}).reshape({x.size(0), x.size(2), channels_})).transpose(1, 2);
}

std::unique_ptr<ModuleStream> LocalAttention::make_stream() { return std::make_unique<WindowStream>(*this, window_); }

}  // namespace polyphase
