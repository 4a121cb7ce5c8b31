#pragma once
// The options of bench/conv_transpose1d.

#include <unistd.h>

#include <string>
#include <vector>

#include "program/arguments.hpp"
#include "shapes.hpp"

namespace polyphase::bench {

struct Options {
  std::vector<std::string> shapes, directions = {"forward", "dgrad", "wgrad", "step"}, precisions = {"fp32", "tf32", "bf16"},
                                   algorithms;
  bool no_peers = false, forms = false, sustained = false, progress = ::isatty(STDERR_FILENO) != 0;
  double time_budget = 0;  ///< seconds; 0: no limit
  std::string json;
};

/// The options of the command line.
void add_options(program::Arguments& app, Options& options);

/// Throws Error if an option has an unknown name.
void check(const Options& options);

/// In the given order; "rest" stands for all that are not named.
[[nodiscard]] std::vector<Shape> chosen_shapes(const std::vector<std::string>& names);

}  // namespace polyphase::bench
