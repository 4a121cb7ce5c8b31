#pragma once
// Ctrl-C as a question that the program asks, not as its end.

#include <signal.h>

#include <array>

namespace polyphase::program {

/// While alive, the first SIGINT or SIGTERM only sets a flag; the second ends the program as usual. SIGHUP (a terminal that is
/// closed) only sets the flag, any number of times, and does nothing under nohup.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  [[nodiscard]] static bool interrupted();

 private:
  std::array<struct sigaction, 3> before_{};
};

/// The exit code of a program that stopped because it was asked to: 128 + SIGINT.
inline constexpr int kInterruptedExit = 130;

}  // namespace polyphase::program
