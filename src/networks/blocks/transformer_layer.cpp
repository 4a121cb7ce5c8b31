#include "networks/blocks/transformer_layer.hpp"

#include "layers/streaming/key_value_ring.hpp"
#include "layers/streaming/module_stream.hpp"

namespace polyphase {
namespace {

class TransformerLayerStream : public ModuleStream {
 public:
  explicit TransformerLayerStream(TransformerLayer& layer) : layer_(layer), ring_(layer.window()) {}
  [[nodiscard]] Tensor push(const Tensor& x, bool) override {
    if (x.size(2) == 0) return x;
    return layers::length_last(layer_.forward(layers::length_second(x), &ring_));
  }
  void reset() override { ring_.reset(); }
  [[nodiscard]] Span inputs_of(Span outputs) const override { return {outputs.first - ring_.context() + 1, outputs.last}; }
  [[nodiscard]] Rate rate() const override { return {}; }
  [[nodiscard]] Layout layout() const override { return Layout::channels_last; }

 private:
  TransformerLayer& layer_;
  KeyValueRing ring_;
};

Linear unbiased(std::int64_t in, std::int64_t out) { return Linear({.in_features = in, .out_features = out, .bias = false}); }

std::optional<LayerScale> scale_of(const TransformerLayer::Options& options) {
  if (!options.layer_scale) return std::nullopt;
  return LayerScale({.channels = options.attention.channels, .init = *options.layer_scale, .name = "scale"});
}

LinearFusion normalized(const LayerNorm& norm) {
  return {.norm_epsilon = norm.options().epsilon, .norm_weight = norm.weight(), .norm_bias = norm.bias()};
}

/// Makes the result residual + scale*result.
void add_residual(LinearFusion& fusion, const std::optional<LayerScale>& scale, const Tensor& residual) {
  if (scale) fusion.scale = scale->gamma();
  fusion.residual = residual;
}

}  // namespace

TransformerLayer::TransformerLayer(const Options& options)
    : norm1_({.normalized_shape = options.attention.channels, .epsilon = options.norm_epsilon}),
      norm2_({.normalized_shape = options.attention.channels, .epsilon = options.norm_epsilon}),
      attention_(options.attention),
      linear1_(unbiased(options.attention.channels, options.hidden)),
      linear2_(unbiased(options.hidden, options.attention.channels)),
      scale1_(scale_of(options)),
      scale2_(scale_of(options)) {}

void TransformerLayer::visit(Visitor& visitor) {
  visitor.module("norm1", norm1_);
  visitor.module("self_attn", attention_);
  if (scale1_) visitor.module("layer_scale_1", *scale1_);
  visitor.module("norm2", norm2_);
  visitor.module("linear1", linear1_);
  visitor.module("linear2", linear2_);
  if (scale2_) visitor.module("layer_scale_2", *scale2_);
}

Tensor TransformerLayer::forward(const Tensor& x, KeyValueRing* ring) {
  const Tensor in = x.contiguous();  // once for the norm and the sum
  LinearFusion around = normalized(norm1_);
  add_residual(around, scale1_, in);
  const Tensor attended = attention_.forward(in, ring, around);
  LinearFusion first = normalized(norm2_), second;
  first.has_gelu = true;
  add_residual(second, scale2_, attended);
  return linear_fused(linear_fused(attended, linear1_.weight(), linear1_.bias(), first), linear2_.weight(), linear2_.bias(),
                      second);
}

std::unique_ptr<ModuleStream> TransformerLayer::make_stream() {
  require<NotImplemented>(window() > 0, "stream: attention without a context keeps all of its past");
  return std::make_unique<TransformerLayerStream>(*this);
}

}  // namespace polyphase
