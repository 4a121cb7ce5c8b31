// polyphase check: golden files against this library.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "commands.hpp"
#include "golden/golden.hpp"
#include "program/options.hpp"

namespace polyphase::tool {
namespace {

struct CheckOptions {
  golden::Options golden;
  std::vector<std::string> files;
  bool quiet = false;
};

struct Totals {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
  int unreadable = 0;
  double worst_share = 0;  // share of its tolerance
  std::string worst;
};

void print_case(const golden::Result& result) {
  if (!result.skipped.empty()) {
    std::printf("%-4s %-13s %-62s %s\n", "skip", result.name.c_str(), result.what.c_str(), result.skipped.c_str());
    return;
  }
  std::printf("%-4s %-13s %-62s %-18s error %9.2e  tolerance %9.2e\n", result.passed() ? "ok" : "FAIL", result.name.c_str(),
              result.what.c_str(), result.worst.c_str(), result.error, result.tolerance);
  std::fflush(stdout);
}

void count(Totals& totals, const std::string& file, const golden::Result& result) {
  if (!result.skipped.empty()) {
    ++totals.skipped;
    return;
  }
  result.passed() ? ++totals.passed : ++totals.failed;
  const double share = result.share();
  if (share > totals.worst_share || totals.worst.empty()) {
    totals.worst_share = share;
    totals.worst = file + " " + result.name + " " + result.worst;
  }
}

void check_one(const CheckOptions& options, const std::string& file, Totals& totals) {
  if (!options.quiet) std::printf("%s\n", file.c_str());
  try {
    golden::check_file(file, options.golden, [&](const golden::Result& result) {
      count(totals, file, result);
      if (!options.quiet || !(result.passed() || !result.skipped.empty())) print_case(result);
    });
  } catch (const std::exception& error) {
    ++totals.unreadable;
    const std::string sentence = program::sentence_of(error);
    const bool names_file = sentence.find(file) != std::string::npos;
    std::fprintf(stderr, "polyphase: %s%s\n", names_file ? "" : concat("check: ", file, ": ").c_str(), sentence.c_str());
  }
}

int check(const CheckOptions& options) {
  if (options.files.empty()) throw UsageError("check: expected at least one file");
  Totals totals;
  for (const std::string& file : options.files) check_one(options, file, totals);
  std::printf("%d passed, %d failed, %d skipped", totals.passed, totals.failed, totals.skipped);
  if (!totals.worst.empty())
    std::printf("; the worst uses %.2f of its tolerance: %s", totals.worst_share, totals.worst.c_str());
  std::printf("\n");
  // If nothing was checked, this is no success.
  return totals.failed + totals.unreadable > 0 || totals.passed == 0 ? 1 : 0;
}

}  // namespace

void add_check(program::Arguments& app, Action& action) {
  const auto options = std::make_shared<CheckOptions>();
  program::Arguments command = app.add_subcommand(
      "check",
      "Compares the library with golden files (safetensors: convolution cases, training traces, generators); exit code 1\n"
      "if an error exceeds its tolerance or a file cannot be checked. An error of a convolution is |result - golden| /\n"
      "sum of |x||w|, worst element; its tolerance is twice what plain arithmetic in that precision gives. Other errors are\n"
      "relative norms.");
  command.add_option("files", options->files, "golden files");
  program::add_device(command, options->golden.device);
  program::add_precision(command, options->golden.precision);
  program::add_algorithm(command, options->golden.algorithm);
  program::add_dtype(command, options->golden.dtype,
                     "f32 (default for convolutions), f64 (default for the others), f16 or bf16 (convolutions only)");
  program::add_threads(command);
  command.add_option("--weights", options->golden.weights,
                     "the weights of a network whose golden file stores none: safetensors, a file of torch.save, ONNX");
  command.add_flag("-q,--quiet", options->quiet, "only failures and the summary");
  command.callback([options, &action] { action = [options] { return check(*options); }; });
}

}  // namespace polyphase::tool
