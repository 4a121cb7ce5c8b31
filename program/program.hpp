#pragma once
// What all programs of the project share: arguments, errors, exit codes.

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "program/arguments.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {

inline constexpr int kErrorExit = 1;
inline constexpr int kUsageExit = 2;

/// The action of a program, called after its arguments are read; returns the exit code.
using Action = std::function<int()>;

/// Wrong arguments: one sentence, exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Calls `check`; an Error in it becomes wrong usage.
template <class Check>
auto as_usage(const Check& check) {
  try {
    return check();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

/// The whole of a main(). `describe` adds options and subcommands to the app, which has --help and --version, and sets the
/// action; a subcommand's callback may set it too. An error is one line on standard error, `NAME: SENTENCE`. The exit code is 2
/// for wrong arguments and 1 for everything else, also if standard output cannot be written.
int run_main(int argc, char** argv, const std::string& name, const std::string& description,
             const std::function<void(Arguments&, Action&)>& describe);

/// An exception in a user's words. Exceptions of the standard library and CLI11 name neither file nor value, so their meaning
/// is given.
[[nodiscard]] std::string sentence_of(const std::exception& error);

}  // namespace polyphase::program
