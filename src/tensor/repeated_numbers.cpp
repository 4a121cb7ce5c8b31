#include "tensor/repeated_numbers.hpp"

#include <utility>

namespace polyphase {
namespace {

bool& is_repeated() {
  thread_local bool repeated = false;
  return repeated;
}

}  // namespace

RepeatedNumbersGuard::RepeatedNumbersGuard() : previous_(std::exchange(is_repeated(), true)) {}
RepeatedNumbersGuard::~RepeatedNumbersGuard() { is_repeated() = previous_; }
bool RepeatedNumbersGuard::is_active() noexcept { return is_repeated(); }

}  // namespace polyphase
