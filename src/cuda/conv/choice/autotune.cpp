#include "cuda/conv/choice/autotune.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <ostream>
#include <thread>

#include "cuda/conv/choice/plan.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"
#include "tensor/log.hpp"

namespace polyphase::cuda {
namespace {

constexpr const char* kHeader = "polyphase autotune 1";  // changes with every kernel change that affects the ranking
constexpr int kRuns = 3;

/// The process's choices, read from the file on first use.
struct Memory {
  std::mutex mutex;
  AutotuneChoices choices;
  std::string path;

  Memory() {
    if (const char* value = std::getenv("POLYPHASE_AUTOTUNE_CACHE")) path = value;
    if (!path.empty()) choices = read_autotune_cache(path);
  }
};

Memory& memory() {
  static Memory the_memory;
  return the_memory;
}

/// Milliseconds of the fastest of several runs, after one that is not timed.
float measure(cudaStream_t stream, const std::function<void()>& run) {
  run();
  float best = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    Event begin(true), end(true);
    begin.record(stream);
    run();
    end.record(stream);
    end.synchronize();
    best = std::min(best, Event::elapsed_ms(begin, end));
  }
  return best;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CHECK_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

std::string autotune_key(const ConvProblem& problem, ConvDirection direction, Precision precision,
                         const std::string& device_name) {
  return concat(direction, ' ', problem, ' ', precision, " on ", device_name);
}

AutotuneChoices read_autotune_cache(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  AutotuneChoices choices;
  std::string line;
  int number = 1;
  const auto refuse = [&](const std::string& what) {
    log_message(LogLevel::warning, concat("autotune: ignoring '", path, "': line ", number, ": ", what));
    return AutotuneChoices{};
  };
  if (!std::getline(file, line) || line != kHeader) return refuse(concat("expected '", kHeader, "'"));
  while (std::getline(file, line)) {
    ++number;
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos || tab == 0) return refuse("expected a key, a tab and an algorithm");
    try {
      choices[line.substr(0, tab)] = parse_algorithm(line.substr(tab + 1));
    } catch (const Error& error) {
      return refuse(error.what());
    }
  }
  return choices;
}

void write_autotune_cache(const std::string& path, const AutotuneChoices& choices) {
  const std::string temporary = concat(path, ".", std::hash<std::thread::id>{}(std::this_thread::get_id()), ".tmp");
  std::ofstream file(temporary);
  file << kHeader << '\n';
  for (const auto& [key, algorithm] : choices) file << key << '\t' << algorithm << '\n';
  file.close();
  if (file && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  (void)std::remove(temporary.c_str());
  log_message(LogLevel::warning, concat("autotune: cannot write '", path, "'"));
}

Algorithm autotuned(const ConvProblem& problem, ConvDirection direction, Precision precision, int device, cudaStream_t stream,
                    const std::function<void(Algorithm)>& issue) {
  const ConvPlan plan = make_conv_plan({problem, direction, precision, device});
  const std::string key = autotune_key(problem, direction, precision, properties(device).name);
  Memory& known = memory();
  const std::scoped_lock lock(known.mutex);  // one measurement at a time: two would slow each other down
  if (const auto found = known.choices.find(key); found != known.choices.end()) {
    const bool possible = std::any_of(plan.candidates.begin(), plan.candidates.end(),
                                      [&](const Candidate& candidate) { return candidate.algorithm == found->second; });
    if (possible) return found->second;
  }
  if (is_capturing(stream)) return plan.algorithm;
  Algorithm best = plan.algorithm;
  float best_ms = std::numeric_limits<float>::infinity();
  for (const Candidate& candidate : plan.candidates) {
    try {
      const float ms = measure(stream, [&] { issue(candidate.algorithm); });
      if (ms < best_ms) best_ms = ms, best = candidate.algorithm;
    } catch (const OutOfMemory&) {  // there is no room for its scratch memory; another algorithm may fit
    }
  }
  if (std::isinf(best_ms)) return best;  // nothing was measured, so nothing is remembered
  if (log_topic("plan")) log_message(LogLevel::info, concat("autotune: ", key, ": ", best, ", ", best_ms * 1e3F, " us"));
  known.choices[key] = best;
  if (!known.path.empty()) write_autotune_cache(known.path, known.choices);
  return best;
}

}  // namespace polyphase::cuda
