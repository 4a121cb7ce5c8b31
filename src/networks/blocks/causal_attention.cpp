#include "networks/blocks/causal_attention.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "ops/attention.hpp"
#include "ops/length.hpp"
#include "ops/mac_counter.hpp"
#include "ops/norm.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kRowsMost = 1 << 12;  // of a ring, whose memory is allocated by the first push

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

/// The queries, keys and values of all heads, (N, L, (heads + 2*key_heads)*head_size).
Tensor CausalAttention::projected(const Tensor& x, const LinearFusion& around) {
  LinearFusion before{.norm_epsilon = around.norm_epsilon, .norm_weight = around.norm_weight, .norm_bias = around.norm_bias};
  if (inputs_.size() == 1) return linear_fused(x, inputs_[0].weight(), inputs_[0].bias(), before);
  const Tensor in = before.norm_epsilon ? layer_norm(x, before.norm_weight, before.norm_bias, *before.norm_epsilon) : x;
  std::vector<Tensor> all;
  for (Linear& input : inputs_) all.push_back(input(in));
  return cat(all, 2);
}

CausalAttention::Parts CausalAttention::parts_of(const Tensor& all, const Tensor& positions) const {
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    const Tensor part = all.narrow(2, first * options_.head_size, count * options_.head_size);
    return part.reshape({all.size(0), all.size(1), count, options_.head_size}).transpose(1, 2);
  };
  const std::int64_t H = options_.heads, K = options_.key_heads;
  Tensor turned = heads(0, H + K);  // queries and keys turn alike
  if (options_.rotates)
    turned = rope(turned, {.base = options_.rope_base, .interleaved = options_.interleaved, .positions = positions});
  return {turned.narrow(1, 0, H), turned.narrow(1, H, K), heads(H + K, K)};
}

/// (N, L, heads*head_size)
Tensor CausalAttention::attended(const Parts& parts, std::int64_t first_key) const {
  const std::int64_t shared_by = options_.heads / options_.key_heads;
  const Tensor y =
      scaled_dot_product_attention(parts.queries, repeated(parts.keys, shared_by), repeated(parts.values, shared_by),
                                   {.causal = true, .window = options_.window, .first_key = first_key});
  return y.transpose(1, 2).reshape({y.size(0), y.size(2), options_.heads * options_.head_size});
}

bool CausalAttention::is_in_one_kernel(const Tensor& x) const {
  if (!x.defined() || x.rank() != 3) return false;
  const std::int64_t most = backend_of(x.device()).rotary_attention_positions(x.dtype(), options_.head_size);
  return !grad_enabled() && !autocast_dtype() && x.numel() > 0 && x.size(1) <= most;
}

Tensor CausalAttention::attended_in_one_kernel(const Tensor& all, const KeyValueRing::Rows& past) const {
  const std::int64_t D = options_.head_size, n = all.size(1);
  const Tensor y = Tensor::empty({all.size(0), n, options_.heads * D}, {all.dtype(), all.device()});
  const RotaryAttention in{.projected = all.detach().contiguous(),
                           .heads = options_.heads,
                           .key_heads = options_.key_heads,
                           .window = options_.window,
                           .scale = 1 / std::sqrt(static_cast<double>(D)),
                           .rotates = options_.rotates,
                           .rotation = {.base = options_.rope_base, .interleaved = options_.interleaved},
                           .sees_only_newest = options_.sees_only_newest && past.keys.defined(),
                           .keys = past.keys,
                           .values = past.values,
                           .position = past.position};
  backend_of(all.device()).rotary_attention(y, in);
  const std::int64_t keys = past.keys.defined() ? options_.window : n;
  ops::MacCounter::add(2 * static_cast<double>(y.numel()) * static_cast<double>(keys));
  return y;
}

Tensor CausalAttention::attended_in_parts(const Tensor& all, KeyValueRing* ring) const {
  if (ring == nullptr) return attended(parts_of(all, {}), 0);
  const Parts parts = parts_of(all, ring->next_position(all.device()));
  KeyValueRing::Seen seen = ring->push(parts.keys, parts.values);
  if (options_.sees_only_newest) {
    const std::int64_t held = seen.keys.size(2), kept = std::min(held, options_.window);
    seen = {seen.keys.narrow(2, held - kept, kept), seen.values.narrow(2, held - kept, kept), seen.first_key + held - kept};
  }
  return attended({parts.queries, seen.keys, seen.values}, seen.first_key);
}

Tensor CausalAttention::forward(const Tensor& x) { return forward(x, nullptr, {}); }
Tensor CausalAttention::forward(const Tensor& x, KeyValueRing& ring) { return forward(x, &ring, {}); }

Tensor CausalAttention::forward(const Tensor& x, KeyValueRing* ring, const LinearFusion& around) {
  require<ShapeError>(ring == nullptr || !options_.sees_only_newest || x.size(1) <= options_.window,
                      "attention: expected at most ", options_.window, " positions in a push, the context, got ", x.size(1));
  const bool holds_window = ring == nullptr || (ring->context() == options_.window && options_.window <= kRowsMost);
  const bool is_one = holds_window && is_in_one_kernel(x);
  KeyValueRing::Rows past;
  if (is_one && ring != nullptr)
    past = ring->rows({.samples = x.size(0),
                       .heads = options_.key_heads,
                       .head_size = options_.head_size,
                       .added = backend_of(x.device()).rotary_attention_positions(x.dtype(), options_.head_size),
                       .like = {x.dtype(), x.device()}});
  const Tensor all = projected(x, around);
  const Tensor y = is_one ? attended_in_one_kernel(all, past) : attended_in_parts(all, ring);
  if (past.keys.defined()) ring->count_on(x.size(1));
  return linear_fused(y, output_.weight(), output_.bias(), {.scale = around.scale, .residual = around.residual});
}

std::unique_ptr<ModuleStream> CausalAttention::make_stream() {
  require<NotImplemented>(options_.window > 0, "stream: attention without a context keeps all of its past");
  return std::make_unique<CausalAttentionStream>(*this);
}

}  // namespace polyphase
