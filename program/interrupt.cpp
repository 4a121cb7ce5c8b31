#include "program/interrupt.hpp"

#include <time.h>

#include <atomic>

namespace polyphase::program {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};

constexpr long long kRepeatMs = 1000;  // a signal so soon after the first is the same request

std::atomic<long long> first_ms{0};  // when the first signal came; 0: none came
static_assert(std::atomic<long long>::is_always_lock_free);

long long now_ms() {
  timespec time{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000LL + time.tv_nsec / 1'000'000 + 1;
}

// Calls only what a handler may call.
extern "C" void note_interrupt(int number) {
  const long long now = now_ms();
  long long first = 0;
  if (first_ms.compare_exchange_strong(first, now) || number == SIGHUP || now - first < kRepeatMs) return;
  (void)::signal(number, SIG_DFL);
  (void)::raise(number);  // takes effect when the handler returns
}

}  // namespace

InterruptGuard::InterruptGuard() {
  static_assert(kSignals.size() == std::tuple_size_v<decltype(before_)>);
  first_ms.store(0);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) continue;  // nohup
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  if (interrupted()) return;  // the same request may come again until the program has ended
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool InterruptGuard::interrupted() { return first_ms.load() != 0; }

}  // namespace polyphase::program
