#include "conv/length_invariant.hpp"

#include <utility>

namespace polyphase {
namespace {

thread_local bool invariant = false;

}  // namespace

LengthInvariantGuard::LengthInvariantGuard() : previous_(std::exchange(invariant, true)) {}
LengthInvariantGuard::~LengthInvariantGuard() { invariant = previous_; }
bool LengthInvariantGuard::is_active() noexcept { return invariant; }

}  // namespace polyphase
