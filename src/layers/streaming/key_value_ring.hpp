#pragma once
// Past keys and values of streaming attention.

#include <cstdint>

#include "../../layers/streaming/module_stream.hpp"

namespace polyphase {

/// Keeps the newest keys and values of causal attention over a window, for a module's stream:
///
///     const pp::RopeOptions place{.positions = ring.next_position(q.device())};
///     const auto seen = ring.push(pp::rope(k, place), v);
///     y = pp::scaled_dot_product_attention(pp::rope(q, place), seen.keys, seen.values,
///                                          {.causal = true, .window = ring.context(), .first_key = seen.first_key});
///
/// On the CPU y has the same bits as without a stream, for any split into pieces. The memory has a fixed size once `context`
/// positions have been pushed.
class KeyValueRing {
 public:
  /// The keys and values that the queries of the pushed positions see.
  struct Seen {
    Tensor keys;                 ///< (N, H, T, D)
    Tensor values;               ///< (N, H, T, E)
    std::int64_t first_key = 0;  ///< the number of the first key in the stream: AttentionOptions::first_key
  };

  /// `context`: how many keys a query sees, including its own (AttentionOptions::window). Throws ShapeError unless it is at
  /// least 1.
  explicit KeyValueRing(std::int64_t context);
  /// Takes the keys (N, H, n, D) and values (N, H, n, E) of the next n >= 0 positions. Throws ShapeError unless their numbers
  /// are equal; then nothing has changed.
  [[nodiscard]] Seen push(const Tensor& keys, const Tensor& values);
  /// Number of positions pushed so far. A push that asks for it is not recorded, since its replays would see the same number.
  [[nodiscard]] std::int64_t positions() const;
  /// The numbers of the next `count` positions on a device, (count) i64: RopeOptions::positions of their queries and keys. They
  /// go on in a recorded push too.
  [[nodiscard]] Tensor next_positions(std::int64_t count, Device device);
  /// The first of them, (1) i64, which stands for all in RopeOptions::positions. The next push() counts it on.
  [[nodiscard]] Tensor next_position(Device device);
  [[nodiscard]] std::int64_t context() const { return context_; }
  /// Resets to no positions.
  void reset();

 private:
  std::int64_t context_;
  std::int64_t positions_ = 0;
  Tensor next_;                 // positions_ on the device of the last next_position(), (1)
  layers::HeldPositions keys_;  // at most context - 1 of each
  layers::HeldPositions values_;
};

}  // namespace polyphase
