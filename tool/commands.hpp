#pragma once
// The subcommands of the polyphase program.

#include "networks/files/model_file.hpp"
#include "program/program.hpp"

namespace polyphase::tool {

using program::Action;
using program::UsageError;

/// Each adds a subcommand to `app` and sets `action` if that subcommand is on the command line.
void add_info(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_networks(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);

/// Adds --config, which takes a path, and --network, for a command that loads a model.
void add_model_options(CLI::App& command, ModelOptions& options, std::string& config);
/// The file's text; empty if there is no path. Throws FormatError.
[[nodiscard]] std::string read_config(const std::string& path);

}  // namespace polyphase::tool
