// polyphase bench: times the CPU convolutions (conv_bench.hpp).

#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "commands.hpp"
#include "conv_bench.hpp"
#include "cpu/isa.hpp"
#include "io/atomic_file.hpp"
#include "program/options.hpp"
#include "shapes.hpp"

namespace polyphase::tool {
namespace {

struct BenchOptions {
  bench::ConvBenchOptions conv;
  std::string json;
};

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const bench::Shape& shape : bench::kShapes) names.emplace_back(shape.name);
  return names;
}

ConvDirection parse_direction(const std::string& text) {
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad, ConvDirection::wgrad}) {
    if (concat(direction) == text) return direction;
  }
  throw Error("expected forward, dgrad or wgrad, got " + text);
}

void save_json(const std::string& path, const std::vector<bench::ConvBenchRecord>& records) {
  std::ostringstream text;
  bench::write_json(text, records);
  AtomicFile file("bench", path);
  file.write(text.view().data(), text.view().size());
  file.commit();
}

int run(const BenchOptions& options) {
  if (!options.json.empty())
    AtomicFile("bench", options.json);  // if the file cannot be written, this fails before anything is timed
  std::cout << "ConvTranspose1d on the CPU, f32, N=" << options.conv.batch << ", " << num_threads() << " threads, " << cpu_isa()
            << '\n';
  bench::print_header(std::cout);
  bool ok = true;
  const auto records = bench::bench_convolutions(options.conv, [&](const bench::ConvBenchRecord& record) {
    bench::print_record(std::cout, record);
    std::cout.flush();
    ok = ok && record.ok;
  });
  if (!options.json.empty()) save_json(options.json, records);
  if (!ok) std::cerr << "polyphase: bench: a result is wrong\n";
  return ok ? 0 : 1;
}

}  // namespace

void add_bench(program::Arguments& app, Action& action) {
  const auto options = std::make_shared<BenchOptions>();
  program::Arguments command = app.add_subcommand(
      "bench",
      "Times ConvTranspose1d on the CPU for layers of published networks. Every result is verified; exit code 1 if one is\n"
      "wrong");
  program::add_threads(command);
  command.add_option("--shapes", options->conv.shapes, "names separated by commas (default: all)")
      .separated_by(',')
      .one_of(shape_names());
  command
      .add_list_function(
          "--directions",
          [options](const std::vector<std::string>& names) {
            options->conv.directions.clear();
            for (const std::string& name : names) options->conv.directions.push_back(parse_direction(name));
          },
          "forward, dgrad and wgrad, separated by commas (default: all)")
      .separated_by(',');
  program::add_algorithm(command, options->conv.algorithm);
  command.add_option("--repeat", options->conv.repeat, "timed runs of each case (default 15)").in_range(1, 100000);
  command.add_option("--batch", options->conv.batch, "N of every shape (default 1)").in_range(1, 4096);
  command.add_option("--json", options->json, "also write the results to this file");
  command.callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace polyphase::tool
