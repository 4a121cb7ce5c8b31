#pragma once
// Ctrl-C as a question that the program asks, not as its end.

namespace superres {

/// While alive, the first SIGINT or SIGTERM only sets a flag; the second ends the program as usual.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  [[nodiscard]] static bool interrupted();
};

/// The exit code of a program that stopped because it was asked to: 128 + SIGINT.
inline constexpr int kInterruptedExit = 130;

}  // namespace superres
