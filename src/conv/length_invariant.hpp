#pragma once
// Results that do not depend on the length of the input.

namespace polyphase {

/// Until the end of the scope, the calling thread's convolutions (forward and input gradient) and matrix products add
/// up each output in one order, whatever the length of the input, the batch and the position. So a Stream has the bits of the
/// whole input, for networks of convolutions, LSTM, attention over a window with heads of at most 128 numbers, LayerNorm,
/// RMSNorm and element-wise layers. On a GPU convolutions and products run in FFMA arithmetic, f16 and bf16 with f32 sums:
/// several times as slow as without the guard. On the CPU only large convolutions in tf32 change (minimal filtering,
/// docs/precision.md): all other results never depend on the length.
class LengthInvariantGuard {
 public:
  LengthInvariantGuard();
  ~LengthInvariantGuard();
  LengthInvariantGuard(const LengthInvariantGuard&) = delete;
  LengthInvariantGuard& operator=(const LengthInvariantGuard&) = delete;
  /// Whether the calling thread is in such a scope.
  [[nodiscard]] static bool is_active() noexcept;

 private:
  bool previous_;
};

}  // namespace polyphase
