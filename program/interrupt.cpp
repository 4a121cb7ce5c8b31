#include "program/interrupt.hpp"

namespace polyphase::program {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};

volatile sig_atomic_t was_interrupted = 0;

extern "C" void note_interrupt(int) { was_interrupted = 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  static_assert(kSignals.size() == std::tuple_size_v<decltype(before_)>);
  was_interrupted = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    const bool hangup = kSignals[i] == SIGHUP;
    if (hangup && before_[i].sa_handler == SIG_IGN) continue;  // nohup
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    // SA_RESETHAND: for a second signal the default action is restored. Not for SIGHUP, which arrives twice when a terminal is
    // closed: from the kernel and from the shell.
    action.sa_flags = SA_RESTART | (hangup ? 0 : static_cast<int>(SA_RESETHAND));
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool InterruptGuard::interrupted() { return was_interrupted != 0; }

}  // namespace polyphase::program
