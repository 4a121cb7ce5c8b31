#include "interrupt.hpp"

#include <csignal>

namespace superres {
namespace {

volatile std::sig_atomic_t was_interrupted = 0;

extern "C" void note_interrupt(int) { was_interrupted = 1; }

void handle(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  was_interrupted = 0;
  // SA_RESETHAND: the second signal finds the default action.
  handle(note_interrupt, static_cast<int>(SA_RESETHAND) | SA_RESTART);
}

InterruptGuard::~InterruptGuard() { handle(SIG_DFL, 0); }

bool InterruptGuard::interrupted() { return was_interrupted != 0; }

}  // namespace superres
