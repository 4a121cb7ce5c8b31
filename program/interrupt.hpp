#pragma once
// Ctrl-C sets a flag that the program asks for.

#include <signal.h>

#include <array>

namespace polyphase::program {

/// During its lifetime the first SIGINT or SIGTERM only sets a flag; one that comes a second or more later ends the program as
/// usual. Sooner it is the same request: a terminal and a launcher such as torchrun both pass Ctrl-C on. SIGHUP (a closed
/// terminal) only sets the flag, any number of times, and does nothing under nohup. After a signal this holds until the program
/// ends or another guard begins.
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
