#include "conv/autotune.hpp"

#include <cstdlib>
#include <string_view>

namespace polyphase {
namespace {

thread_local int choice_of_thread = -1;  // -1: the environment decides

bool enabled_by_environment() {
  static const bool enabled = [] {
    const char* value = std::getenv("POLYPHASE_AUTOTUNE");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return enabled;
}

}  // namespace

bool autotune_enabled() { return choice_of_thread < 0 ? enabled_by_environment() : choice_of_thread == 1; }

AutotuneGuard::AutotuneGuard(bool enabled) : previous_(choice_of_thread) { choice_of_thread = enabled ? 1 : 0; }
AutotuneGuard::~AutotuneGuard() { choice_of_thread = previous_; }

}  // namespace polyphase
