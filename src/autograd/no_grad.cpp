#include "autograd/no_grad.hpp"

namespace polyphase {

namespace {
thread_local bool recording = true;
}  // namespace

bool grad_enabled() { return recording; }

GradModeGuard::GradModeGuard(bool enabled) : previous_(recording) { recording = enabled; }

GradModeGuard::~GradModeGuard() { recording = previous_; }

}  // namespace polyphase
