#pragma once
// The error of a job of several processes.

#include <string>

#include "../tensor/error.hpp"

namespace polyphase::distributed {

/// A failed job: a rank that is dead, hung, has diverged or does not fit. All ranks throw it with the same text, which names
/// the rank, its host, the step and the operation. Nothing can be sent afterwards; end the process with a nonzero exit code.
class DistributedError : public Error {
 public:
  explicit DistributedError(const std::string& what, bool should_print = true) : Error(what), should_print_(should_print) {}
  /// Whether this rank should print the text: the first living one and the guilty one.
  [[nodiscard]] bool should_print() const noexcept { return should_print_; }

 private:
  bool should_print_;
};

}  // namespace polyphase::distributed
