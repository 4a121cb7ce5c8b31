#pragma once
// The subcommands of the polyphase program.

#include <CLI/CLI.hpp>

#include <functional>
#include <stdexcept>

namespace polyphase::tool {

/// What a subcommand returns to main: the exit code.
using Action = std::function<int()>;

/// A combination of options that makes no sense: one sentence, exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Each adds a subcommand to `app` and sets `action` when that subcommand is on the command line.
void add_info(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

}  // namespace polyphase::tool
