#pragma once
// The subcommands of the polyphase program.

#include "program/program.hpp"

namespace polyphase::tool {

using program::Action;
using program::UsageError;

/// Each adds a subcommand to `app` and sets `action` when that subcommand is on the command line.
void add_info(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

}  // namespace polyphase::tool
