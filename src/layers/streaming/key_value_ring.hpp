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

  /// The past as TensorBackend::rotary_attention reads and extends it: its keys, values and position.
  struct Rows {
    Tensor keys;      ///< (N, H, R, D)
    Tensor values;    ///< (N, H, R, D)
    Tensor position;  ///< (2) i64
  };
  /// What rows() has room for.
  struct RowsOptions {
    std::int64_t samples = 1;    ///< N
    std::int64_t heads = 1;      ///< H, of keys and values
    std::int64_t head_size = 1;  ///< D
    std::int64_t added = 1;      ///< the most positions that are added together: R = context + added - 1
    TensorOptions like{};        ///< dtype and device
  };
  /// The keys and values so far, moved into rows: position p is in row p % R. The caller adds positions and counts them by
  /// count_on(); all other functions move what is kept out of the rows again. Not differentiable. Throws ShapeError,
  /// DTypeError or DeviceError if what was pushed before does not fit; then nothing has changed.
  [[nodiscard]] Rows rows(const RowsOptions& options);
  /// Counts `count` positions that have been added to rows().
  void count_on(std::int64_t count);
  /// Resets to no positions.
  void reset();

 private:
  void leave_rows();

  std::int64_t context_;
  std::int64_t positions_ = 0;
  Tensor next_;                 // positions_ on the device of the last next_position(), (1)
  layers::HeldPositions keys_;  // at most context - 1 of each
  layers::HeldPositions values_;
  Rows rows_;  // instead of the three before; undefined if not in use
};

}  // namespace polyphase
