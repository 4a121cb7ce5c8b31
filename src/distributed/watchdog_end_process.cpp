#include <unistd.h>

#include "distributed/watchdog.hpp"

namespace polyphase::distributed {

void end_process(const std::string& what, bool should_print) noexcept {
  if (should_print) {
    const std::string line = "error: " + what + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  }
  ::_exit(1);
}

}  // namespace polyphase::distributed
