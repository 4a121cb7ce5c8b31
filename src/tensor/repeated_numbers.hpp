#pragma once
// Random numbers that a CUDA graph repeats.

namespace polyphase {

/// Until the end of the scope, a CUDA graph that the calling thread records draws the same numbers in every replay. Outside
/// such a scope a graph takes numbers of the default generator alone, which continue from replay to replay (cuda::capture).
class RepeatedNumbersGuard {
 public:
  RepeatedNumbersGuard();
  ~RepeatedNumbersGuard();
  RepeatedNumbersGuard(const RepeatedNumbersGuard&) = delete;
  RepeatedNumbersGuard& operator=(const RepeatedNumbersGuard&) = delete;
  /// Whether the calling thread is in such a scope.
  [[nodiscard]] static bool is_active() noexcept;

 private:
  bool previous_;
};

}  // namespace polyphase
