#pragma once
// Attention over a window of the past, and rotary positions. Differentiable; f16 and bf16 are computed in f32.

#include <optional>

#include "../tensor/tensor.hpp"

namespace polyphase {

struct AttentionOptions {
  bool causal = false;  ///< query i has the position p = i + Lk - Lq of a key, and sees the keys k <= p
  /// With `causal`: a query sees only keys k > p - window; 0: all of them.
  std::int64_t window = 0;
  std::optional<double> scale{};  ///< factor of the products; none: 1/sqrt(D)
  /// The number of the first key in its stream. Sums over keys are split at multiples of 256 counted from the stream's start,
  /// so that a query gets the same bits on the CPU if a ring holds only the newest keys.
  std::int64_t first_key = 0;
};
/// q (N, H, Lq, D), k (N, H, Lk, D), v (N, H, Lk, E) -> (N, H, Lq, E): softmax(scale q k^T) v over the keys that each query
/// sees (Vaswani et al. 2017). Queries are processed in blocks of 128, so that memory grows with the window and not with the
/// square of the length. On the CPU the result of a query does not depend on the other queries. Throws ShapeError if the shapes
/// do not fit, if Lk < 1, or if causal with Lk < Lq.
[[nodiscard]] Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const AttentionOptions& options = {});

struct RopeOptions {
  double base = 10000;
  /// Which elements form a pair: 2i and 2i + 1 if true, else i and i + D/2.
  bool interleaved = false;
  std::int64_t offset = 0;  ///< the position of the first element along L
  Tensor positions{};       ///< (L) i64, or (1): the first of consecutive ones, instead of `offset`; may be undefined
  Tensor inv_freq{};        ///< (D/2) angle per position instead of base^(-2i/D); may be undefined
};
/// Rotary position embedding (Su et al., arXiv 2104.09864): x (..., L, D), D even; pair i at position p is rotated by
/// p*inv_freq[i]. Angles are computed in f64.
[[nodiscard]] Tensor rope(const Tensor& x, const RopeOptions& options = {});

}  // namespace polyphase
