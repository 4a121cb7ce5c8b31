#include "networks/blocks/causal_attention.hpp"

#include <algorithm>

#include "layers/streaming/key_value_ring.hpp"
#include "ops/attention.hpp"
#include "ops/length.hpp"

namespace polyphase {
namespace {

class CausalAttentionStream : public ModuleStream {
 public:
  explicit CausalAttentionStream(CausalAttention& attention) : attention_(attention), ring_(attention.options().window) {}
  [[nodiscard]] Tensor push(const Tensor& x, bool) override {
    return layers::length_last(attention_.forward(layers::length_second(x), ring_));
  }
  void reset() override { ring_.reset(); }
  [[nodiscard]] Span inputs_of(Span outputs) const override { return {outputs.first - ring_.context() + 1, outputs.last}; }
  [[nodiscard]] Rate rate() const override { return {}; }
  [[nodiscard]] Layout layout() const override { return Layout::channels_last; }

 private:
  CausalAttention& attention_;
  KeyValueRing ring_;
};

/// (N, H, L, D) -> (N, H*times, L, D), each head `times` times in a row.
Tensor repeated(const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), times, x.size(2), x.size(3)})
      .reshape({x.size(0), x.size(1) * times, x.size(2), x.size(3)});
}

}  // namespace

CausalAttention::CausalAttention(const Options& options)
    : options_(options),
      output_({.in_features = options.heads * options.head_size, .out_features = options.channels, .bias = options.bias}) {
  const std::int64_t queries = options.heads * options.head_size, keys = options.key_heads * options.head_size;
  const std::vector<std::int64_t> sizes = options.inputs.size() == 1 ? std::vector<std::int64_t>{queries + 2 * keys}
                                                                     : std::vector<std::int64_t>{queries, keys, keys};
  for (const std::int64_t size : sizes)
    inputs_.push_back(Linear({.in_features = options.channels, .out_features = size, .bias = options.bias}));
}

void CausalAttention::visit(Visitor& visitor) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) visitor.module(options_.inputs[i], inputs_[i]);
  visitor.module(options_.output, output_);
}

CausalAttention::Parts CausalAttention::parts_of(const Tensor& x, const Tensor& positions) {
  std::vector<Tensor> projected;
  for (Linear& input : inputs_) projected.push_back(input(x));
  const Tensor all = projected.size() == 1 ? projected.front() : cat(projected, 2);
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    const Tensor part = all.narrow(2, first * options_.head_size, count * options_.head_size);
    return part.reshape({x.size(0), x.size(1), count, options_.head_size}).transpose(1, 2);
  };
  const std::int64_t H = options_.heads, K = options_.key_heads;
  Tensor turned = heads(0, H + K);  // queries and keys turn alike
  if (options_.rotates)
    turned = rope(turned, {.base = options_.rope_base, .interleaved = options_.interleaved, .positions = positions});
  return {turned.narrow(1, 0, H), turned.narrow(1, H, K), heads(H + K, K)};
}

Tensor CausalAttention::attended(const Parts& parts, std::int64_t first_key) {
  const std::int64_t shared_by = options_.heads / options_.key_heads;
  const Tensor y =
      scaled_dot_product_attention(parts.queries, repeated(parts.keys, shared_by), repeated(parts.values, shared_by),
                                   {.causal = true, .window = options_.window, .first_key = first_key});
  return output_(y.transpose(1, 2).reshape({y.size(0), y.size(2), options_.heads * options_.head_size}));
}

Tensor CausalAttention::forward(const Tensor& x) { return attended(parts_of(x, {}), 0); }

Tensor CausalAttention::forward(const Tensor& x, KeyValueRing& ring) {
  require<ShapeError>(!options_.sees_only_newest || x.size(1) <= options_.window, "attention: expected at most ",
                      options_.window, " positions in a push, the context, got ", x.size(1));
  Parts parts = parts_of(x, ring.next_position(x.device()));
  KeyValueRing::Seen seen = ring.push(parts.keys, parts.values);
  if (options_.sees_only_newest) {
    const std::int64_t all = seen.keys.size(2), kept = std::min(all, options_.window);
    seen = {seen.keys.narrow(2, all - kept, kept), seen.values.narrow(2, all - kept, kept), seen.first_key + all - kept};
  }
  return attended({parts.queries, seen.keys, seen.values}, seen.first_key);
}

std::unique_ptr<ModuleStream> CausalAttention::make_stream() {
  require<NotImplemented>(options_.window > 0, "stream: attention without a context keeps all of its past");
  return std::make_unique<CausalAttentionStream>(*this);
}

}  // namespace polyphase
