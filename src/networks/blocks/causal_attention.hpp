#pragma once
// Attention of codec decoders over a window of the past. Internal.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/linear.hpp"
#include "layers/streaming/key_value_ring.hpp"
#include "ops/linear_fused.hpp"

namespace polyphase {

/// (N, L, channels) -> (N, L, channels): queries, keys and values are projected, queries and keys rotated by their positions
/// (rope()), each query attends to the keys of its window (scaled_dot_product_attention()), and the heads' results are
/// projected together. While no gradients are recorded, an NVIDIA GPU computes up to 8 positions from the first projection to
/// the last in one kernel (TensorBackend::rotary_attention), with the ring of a stream.
class CausalAttention : public Module {
 public:
  struct Options {
    std::int64_t channels = 0;
    std::int64_t heads = 1;
    std::int64_t key_heads = 1;  ///< of keys and values; divides `heads`, of which so many in a row share one
    std::int64_t head_size = 0;
    std::int64_t window = 0;  ///< keys that a query sees, its own included; 0: all before it
    bool rotates = true;
    double rope_base = 10000;
    bool interleaved = false;  ///< RopeOptions::interleaved
    bool bias = false;         ///< of the projections
    /// Keys of the projections: one for queries, keys and values, which are its outputs in this order, or one for each.
    std::vector<std::string> inputs{};
    std::string output{};
    /// In a Stream all queries of a push see only the newest `window` keys of all that were pushed, this push's included, as
    /// with the ring buffer of kyutai-labs/moshi@e6a55d2:moshi/moshi/modules/transformer.py. Results then depend on the pieces.
    bool sees_only_newest = false;
  };
  explicit CausalAttention(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// The next positions of a stream; `ring` holds its past. Throws ShapeError for more than `window` positions with
  /// `sees_only_newest`.
  [[nodiscard]] Tensor forward(const Tensor& x, KeyValueRing& ring);
  /// residual + scale*(attention of layer_norm(x)), with what `around` has: its norm before the first projection, its scale
  /// and residual after the last. `ring` may be null.
  [[nodiscard]] Tensor forward(const Tensor& x, KeyValueRing* ring, const LinearFusion& around);
  /// In a ChannelsLast. Throws NotImplemented without a window: the past would have no bound.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  struct Parts {
    Tensor queries, keys, values;  // (N, H, L, head_size)
  };
  [[nodiscard]] Tensor projected(const Tensor& x, const LinearFusion& around);
  [[nodiscard]] Parts parts_of(const Tensor& all, const Tensor& positions) const;
  [[nodiscard]] Tensor attended(const Parts& parts, std::int64_t first_key) const;
  [[nodiscard]] bool is_in_one_kernel(const Tensor& x) const;
  [[nodiscard]] Tensor attended_in_one_kernel(const Tensor& all, const KeyValueRing::Rows& past) const;
  [[nodiscard]] Tensor attended_in_parts(const Tensor& all, KeyValueRing* ring) const;

  Options options_;
  std::vector<Linear> inputs_;
  Linear output_;
};

}  // namespace polyphase
