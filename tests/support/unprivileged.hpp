#pragma once
// Permissions do not apply to root, and tests often run as root in a container.

#include <unistd.h>

#include <stdexcept>

namespace polyphase::testing {

/// If the process is root, makes it the user nobody (effectively) until the end of the scope.
class Unprivileged {
 public:
  Unprivileged() : was_root_(::geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    if (was_root_ && ::seteuid(kNobody) != 0) throw std::runtime_error("seteuid failed");
  }
  ~Unprivileged() {
    if (was_root_ && ::seteuid(0) != 0) _exit(1);  // to continue as the wrong user would spoil every later test
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  bool was_root_;
};

}  // namespace polyphase::testing
