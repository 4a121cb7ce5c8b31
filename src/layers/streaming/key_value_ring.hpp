#pragma once
// The past of a stream of attention.

#include <cstdint>

#include "../../layers/streaming/module_stream.hpp"

namespace polyphase {

/// Keeps the newest keys and values of causal attention over a window, for a module's stream:
///
///     const pp::RopeOptions place{.offset = ring.positions()};
///     const auto seen = ring.push(pp::rope(k, place), v);
///     y = pp::scaled_dot_product_attention(pp::rope(q, place), seen.keys, seen.values,
///                                          {.causal = true, .window = ring.context(), .first_key = seen.first_key});
///
/// On the CPU y has the bits of the whole, however the positions are cut. Memory is of a fixed size once `context` positions
/// have been pushed.
class KeyValueRing {
 public:
  /// What the queries of the positions just pushed see.
  struct Seen {
    Tensor keys;                 ///< (N, H, T, D)
    Tensor values;               ///< (N, H, T, E)
    std::int64_t first_key = 0;  ///< the number of the first of them in the stream: AttentionOptions::first_key
  };

  /// `context`: how many keys a query sees, its own included (AttentionOptions::window). Throws ShapeError unless it is at
  /// least 1.
  explicit KeyValueRing(std::int64_t context);
  /// Takes the keys (N, H, n, D) and values (N, H, n, E) of the next n >= 0 positions. Throws ShapeError unless there are as
  /// many of both; then nothing has changed.
  [[nodiscard]] Seen push(const Tensor& keys, const Tensor& values);
  /// Pushed so far: the number of the next position, RopeOptions::offset of its query and key.
  [[nodiscard]] std::int64_t positions() const { return positions_; }
  [[nodiscard]] std::int64_t context() const { return context_; }
  /// Back to no positions.
  void reset();

 private:
  std::int64_t context_;
  std::int64_t positions_ = 0;
  layers::HeldPositions keys_;  // at most context - 1 of each
  layers::HeldPositions values_;
};

}  // namespace polyphase
