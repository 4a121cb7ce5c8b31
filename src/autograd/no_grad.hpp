#pragma once
// Disables recording for a scope.

namespace polyphase {

/// Whether the calling thread records operations; true unless there is a NoGradGuard.
[[nodiscard]] bool grad_enabled();

/// Sets recording for the calling thread until the end of the scope.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled);
  ~GradModeGuard();
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  bool previous_;
};

/// Records nothing until the end of the scope: for evaluation and for writing to parameters.
class NoGradGuard : GradModeGuard {
 public:
  NoGradGuard() : GradModeGuard(false) {}
};

}  // namespace polyphase
