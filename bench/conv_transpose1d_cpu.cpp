// Times ConvTranspose1d on the CPU: every shape of bench/shapes.hpp with N = 1, forward, dgrad and wgrad, each result verified.
//   conv_transpose1d_cpu [--threads T] [--shapes A,B] [--directions forward,wgrad] [--algorithm gemm] [--repeat R] [--batch N]
//                        [--json FILE]
// Exits with 1 where a result is wrong, 2 on a bad argument. bench/peers_torch_cpu.py times PyTorch on the shapes of the JSON
// file.

#include <charconv>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "conv_bench.hpp"
#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "tensor/error.hpp"

namespace {

using namespace polyphase;

struct Arguments {
  bench::ConvBenchOptions options;
  std::string json;
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int to_int(std::string_view option, std::string_view text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<Error>(error == std::errc{} && end == text.data() + text.size() && value >= least, option,
                 ": expected a number of at least ", least, ", got '", text, "'");
  return value;
}

std::vector<ConvDirection> to_directions(std::string_view text) {
  std::vector<ConvDirection> directions;
  for (const std::string& name : split(text)) {
    const std::size_t before = directions.size();
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad, ConvDirection::wgrad})
      if (concat(direction) == name) directions.push_back(direction);
    require<Error>(directions.size() > before, "--directions: expected forward, dgrad or wgrad, got '", name, "'");
  }
  return directions;
}

Arguments parse(const std::vector<std::string_view>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string_view option = words[i];
    require<Error>(i + 1 < words.size(), option, ": expected a value after it");
    const std::string_view value = words[i + 1];
    if (option == "--threads")
      set_num_threads(to_int(option, value, 1));
    else if (option == "--shapes")
      arguments.options.shapes = split(value);
    else if (option == "--directions")
      arguments.options.directions = to_directions(value);
    else if (option == "--algorithm")
      arguments.options.algorithm = parse_algorithm(value);
    else if (option == "--repeat")
      arguments.options.repeat = to_int(option, value, 1);
    else if (option == "--batch")
      arguments.options.batch = to_int(option, value, 0);
    else if (option == "--json")
      arguments.json = value;
    else
      throw Error(
          concat("expected --threads, --shapes, --directions, --algorithm, --repeat, --batch or --json, got '", option, "'"));
  }
  return arguments;
}

int run(const Arguments& arguments) {
  std::cout << "ConvTranspose1d on the CPU, f32, " << num_threads() << " threads, " << cpu_isa() << '\n';
  bench::print_header(std::cout);
  bool ok = true;
  const auto records = bench::bench_convolutions(arguments.options, [&](const bench::ConvBenchRecord& record) {
    bench::print_record(std::cout, record);
    ok = ok && record.ok;
  });
  if (!arguments.json.empty()) {
    std::ofstream file(arguments.json);
    bench::write_json(file, records);
    file.close();
    require<Error>(file.good(), "cannot write '", arguments.json, "'");
  }
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  try {
    arguments = parse({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::cerr << "conv_transpose1d_cpu: " << error.what() << '\n';
    return 2;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::cerr << "conv_transpose1d_cpu: " << error.what() << '\n';
    return 1;
  }
}
