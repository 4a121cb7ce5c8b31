#pragma once
// Ctrl-C sets a flag that the program asks for.

#include <signal.h>

#include <array>

namespace polyphase::program {

/// During its lifetime the first SIGINT or SIGTERM only sets a flag; a second one ends the program as usual. SIGHUP (a closed
/// terminal) only sets the flag, any number of times, and does nothing under nohup.
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

/// The exit code of a program that stopped on request: 128 + SIGINT.
inline constexpr int kInterruptedExit = 130;

}  // namespace polyphase::program
