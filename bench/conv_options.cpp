#include "conv_options.hpp"

#include <algorithm>
#include <iterator>

#include "conv/algorithm.hpp"
#include "gpu_case.hpp"
#include "program/options.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {

void check(const Options& options) {
  for (const std::string& name : options.precisions) (void)mode_of(name);
  for (const std::string& name : options.directions) (void)pass_of(name);
  for (const std::string& name : options.algorithms) (void)parse_algorithm(name);
  for (const std::string& name : options.shapes)
    require<Error>(name == "rest" || name == "blocks" || find_shape(name) != nullptr,
                   "--shapes: no shape of shapes.hpp is called '", name, "'");
}

void add_options(program::Arguments& app, Options& options) {
  app.add_option("--shapes", options.shapes,
                 "names in shapes.hpp, \"blocks\" for its residual blocks, \"rest\" for all others that are not named; in this "
                 "order; default: all except the blocks")
      .separated_by(',');
  app.add_option("--directions", options.directions, "forward, dgrad, wgrad, step; forward of every shape comes first")
      .separated_by(',');
  app.add_option("--precisions", options.precisions, "ieee, fp32, tf32, bf16, f16, f64; in this order").separated_by(',');
  app.add_option("--algorithms", options.algorithms,
                 "direct, depthwise, gemm, automatic; default: all that can compute the problem")
      .separated_by(',');
  app.add_flag("--no-peers", options.no_peers, "leave cuDNN out");
  app.add_flag("--forms", options.forms,
               "also every tensor-core kernel and every tile of the direct ones, to check the choice among them");
  app.add_flag("--sustained", options.sustained,
               "also 300 launches in a row of the chosen algorithm, at most one second, after everything else");
  app.add_option("--time-budget", options.time_budget,
                 "seconds after which no new case begins; --sustained takes a tenth of them")
      .above_zero();
  app.add_flag("--progress", options.progress,
               "a line for each case on standard error: its seconds by purpose; always on a terminal");
  app.add_option("--json", options.json, "file for the records");
}

std::vector<Shape> chosen_shapes(const std::vector<std::string>& names) {
  if (names.empty()) return {kShapes.begin(), kShapes.end()};
  std::vector<Shape> chosen;
  const auto is_other = [&](const Shape& shape) { return std::count(names.begin(), names.end(), shape.name) == 0; };
  for (const std::string& name : names) {
    if (name == "rest")
      std::copy_if(kShapes.begin(), kShapes.end(), std::back_inserter(chosen), is_other);
    else if (name == "blocks")
      chosen.insert(chosen.end(), kBlocks.begin(), kBlocks.end());
    else
      chosen.push_back(*find_shape(name));
  }
  return chosen;
}

}  // namespace polyphase::bench
