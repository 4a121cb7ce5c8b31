#pragma once
// The subcommands of the polyphase program.

#include "networks/files/model_file.hpp"
#include "program/program.hpp"

namespace polyphase::tool {

using program::Action;
using program::UsageError;

/// Each adds a subcommand to `app` and sets `action` if that subcommand is on the command line.
void add_info(program::Arguments& app, Action& action);
void add_check(program::Arguments& app, Action& action);
void add_bench(program::Arguments& app, Action& action);
void add_networks(program::Arguments& app, Action& action);
void add_run(program::Arguments& app, Action& action);
void add_convert(program::Arguments& app, Action& action);
void add_inspect(program::Arguments& app, Action& action);

/// Adds --config, which takes a path, and --network, for a command that loads a model.
void add_model_options(program::Arguments& command, ModelOptions& options, std::string& config);
/// The file's text; empty if there is no path. Throws FormatError.
[[nodiscard]] std::string read_config(const std::string& path);

}  // namespace polyphase::tool
