#pragma once
// A layer of Mimi's transformer. Internal.

#include <memory>
#include <optional>

#include "layers/linear.hpp"
#include "layers/norm.hpp"
#include "networks/blocks/causal_attention.hpp"

namespace polyphase {

/// x (N, L, channels) -> x + scale*attention(norm(x)), then the same with linear2(gelu(linear1(norm(x)))). Products are
/// linear_fused(): with CausalAttention, up to 8 rows are five kernels on an NVIDIA GPU while no gradients are recorded.
/// Children: norm1, self_attn, layer_scale_1, norm2, linear1, linear2, layer_scale_2.
class TransformerLayer : public Module {
 public:
  struct Options {
    CausalAttention::Options attention{};
    std::int64_t hidden = 0;  ///< channels between linear1 and linear2, which have no biases
    double norm_epsilon = 1e-5;
    std::optional<double> layer_scale{};  ///< the scales at first; none: no scales
  };
  explicit TransformerLayer(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override { return forward(x, nullptr); }
  /// The next positions of a stream; `ring` holds its past, and may be null.
  [[nodiscard]] Tensor forward(const Tensor& x, KeyValueRing* ring);
  /// In a ChannelsLast. Throws NotImplemented without a window.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] std::int64_t window() const { return attention_.options().window; }

 private:
  LayerNorm norm1_, norm2_;
  CausalAttention attention_;
  Linear linear1_, linear2_;
  std::optional<LayerScale> scale1_, scale2_;
};

}  // namespace polyphase
