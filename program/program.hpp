#pragma once
// What every program of the project shares: how it reads its arguments, refuses them, reports errors and ends.

#include <CLI/CLI.hpp>

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "tensor/error.hpp"

namespace polyphase::program {

inline constexpr int kErrorExit = 1;
inline constexpr int kUsageExit = 2;

/// What a program does once its arguments are read; returns the exit code.
using Action = std::function<int()>;

/// Arguments that make no sense: one sentence, exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Calls `check`, whose Error means wrong usage.
template <class Check>
auto as_usage(const Check& check) {
  try {
    return check();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

/// The whole of a main(). `describe` adds options and subcommands to the app, which has --help and --version, and sets the
/// action; a subcommand's callback may set it too. An error is one line on standard error, `NAME: SENTENCE`: exit code 2 where
/// the arguments are wrong, 1 for everything else, also where standard output cannot be written.
int run_main(int argc, char** argv, const std::string& name, const std::string& description,
             const std::function<void(CLI::App&, Action&)>& describe);

/// An exception in a user's words: of the standard library's and CLI11's, which name neither file nor value, what they mean.
[[nodiscard]] std::string sentence_of(const std::exception& error);

}  // namespace polyphase::program
