// Times published networks at their full size with random weights (network_cases.hpp; configurations in networks/).
//   networks [--device cpu] [--networks NAME,...] [--match REGEX] [--precisions fp32,...] [--threads T] [--time-budget S]
//            [--json FILE]
// For each case and precision: the burst, which is the median of runs that are waited for, with a rest between them on a GPU;
// and the mean of runs one after another for about a second. On a GPU both for the eager network and for a CUDA graph of it.
// A case that fails is named, and the others run; the file is written again after each case. The exit status is 1 if one
// failed, or if a result is not finite or too short, a loss does not fall, or a graph's result differs from the eager one in a
// bit. Networks that the registry lacks are named and omitted. bench/peers_torch_networks.py times PyTorch.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "cpu/threads.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "io/atomic_file.hpp"
#include "network_timing.hpp"
#include "network_work.hpp"
#include "networks/registry.hpp"
#include "program/options.hpp"
#include "program/program.hpp"

namespace {

namespace pp = polyphase;
namespace bench = polyphase::bench;
using Clock = std::chrono::steady_clock;

struct Asked {
  pp::Device device = pp::Device::cpu();
  std::vector<std::string> networks, precisions;
  std::string match, json;
  double time_budget = 0;
};

struct Times {
  double us_burst = 0, us_sustained = 0;
};

/// The first run is not counted; if it is fast, two more are not.
Times time_runs(const std::function<void()>& run, pp::Device device) {
  constexpr double kBurst = 2e6, kSustained = 1e6, kLongestRest = 1e5;  // us
  const double first = bench::us_of(1, run, device);
  if (first < kBurst) bench::us_of(2, run, device);
  const int runs = static_cast<int>(std::clamp(kBurst / first, 3.0, 15.0));
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    times.push_back(bench::us_of(1, run, device));
    const double rest = device.is_cuda() ? std::min(2 * times.back(), kLongestRest) : 0;
    std::this_thread::sleep_for(std::chrono::microseconds(static_cast<std::int64_t>(rest)));
  }
  std::sort(times.begin(), times.end());
  Times result{.us_burst = times[times.size() / 2]};
  const int count = static_cast<int>(std::clamp(kSustained / result.us_burst, 2.0, 300.0));
  result.us_sustained = bench::us_of(count, run, device);
  return result;
}

class Table {
 public:
  explicit Table(const Asked& asked) : asked_(asked) {}

  int time_all() {
    std::printf("networks on %s, %d threads\n%-34s %-6s %-6s %12s %12s %10s\n", pp::to_string(asked_.device).c_str(),
                pp::num_threads(), "network", "", "mode", "ms burst", "sustained", "peak MiB");
    const std::regex match(asked_.match);
    for (const bench::NetworkCase& what : bench::kNetworkCases) {
      const std::string name = bench::name_of(what);
      if (!is_asked(what, name, match)) continue;
      for (const std::string& precision : asked_.precisions) {
        try {
          time_case(what, name, precision);
        } catch (const std::exception& error) {
          std::printf("%-34s %-6s FAILED: %s\n", name.c_str(), precision.c_str(), error.what());
          ok_ = false;
        }
        if (!asked_.json.empty()) save();
      }
    }
    if (!unknown_.empty()) std::printf("not in the registry, left out: %s\n", unknown_.c_str());
    if (!left_out_.empty())
      std::printf("out of time: %zu cases left out, from %s on\n", left_out_.size(), left_out_.front().c_str());
    if (records_.empty() && left_out_.empty()) throw pp::Error("no case is selected: see --networks and --match");
    return ok_ ? 0 : 1;
  }

 private:
  [[nodiscard]] bool is_asked(const bench::NetworkCase& what, const std::string& name, const std::regex& match) {
    const auto& wanted = asked_.networks;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), what.name) == wanted.end()) return false;
    if (!asked_.match.empty() && !std::regex_search(name, match)) return false;
    if (asked_.device.is_cpu() && what.N > 1) return false;
    const auto entries = pp::network_entries();
    if (std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == what.network; })) return true;
    unknown_ += (unknown_.empty() ? "" : ", ") + name;
    return false;
  }

  void time_case(const bench::NetworkCase& what, const std::string& name, const std::string& precision) {
    const bool is_step = bench::is_training(what.run);
    const bench::NetworkPrecision asked = bench::network_precision(precision);
    if (is_step && (asked.dtype == pp::DType::f16 || asked.dtype == pp::DType::f64)) return;  // f16 needs a scaled loss
    const std::chrono::duration<double> spent = Clock::now() - begin_;
    if (asked_.time_budget > 0 && spent.count() > asked_.time_budget) return left_out_.push_back(name + " " + precision);
    pp::Allocator& allocator = pp::backend_of(asked_.device).allocator();
    allocator.trim();
    allocator.reset_peak();
    bench::NetworkWork work(what, asked, asked_.device);
    const auto run = [&] { work.run(); };
    const Times eager_times = time_runs(run, asked_.device);
    report(name, precision, is_step, "eager", eager_times, work, work.problem());
    if (asked_.device.is_cpu()) return;
    if (what.run == bench::NetworkRun::stream) {
      work.record_stream();
      const Times recorded = time_runs(run, asked_.device);
      return report(name, precision, is_step, "graph", recorded, work, work.problem());
    }
    const std::vector<float> eager = work.result();
    pp::cuda::Graph graph = pp::cuda::capture(run, asked_.device.index);
    const Times times = time_runs([&] { graph.replay(); }, asked_.device);
    std::string problem = work.problem();
    if (problem.empty() && !is_step && work.result() != eager) problem = "the graph's result is not the eager one's";
    report(name, precision, is_step, "graph", times, work, problem);
  }

  void report(const std::string& name, const std::string& precision, bool is_step, const char* mode, const Times& times,
              const bench::NetworkWork& work, const std::string& problem) {
    const double peak = static_cast<double>(pp::backend_of(asked_.device).allocator().stats().peak_bytes) / (1 << 20);
    std::printf("%-34s %-6s %-6s %12.3f %12.3f %10.1f%s%s\n", name.c_str(), precision.c_str(), mode, times.us_burst / 1e3,
                times.us_sustained / 1e3, peak, problem.empty() ? "" : "  WRONG: ", problem.c_str());
    std::fflush(stdout);
    ok_ = ok_ && problem.empty();
    if (!problem.empty()) return;  // a time is printed only after its result was found right
    std::vector<std::int64_t> input;
    for (int d = 0; d < work.input_shape().rank(); ++d) input.push_back(work.input_shape()[d]);
    records_.push_back({{"network", name},
                        {"precision", precision},
                        {"direction", is_step ? "step" : "forward"},
                        {"mode", mode},
                        {"input", input},
                        {"seconds", work.seconds()},
                        {"us_burst", times.us_burst},
                        {"us_sustained", times.us_sustained},
                        {"peak_mib", peak}});
  }

  void save() const {
    nlohmann::json all{{"suite", "networks"}, {"device", pp::to_string(asked_.device)}, {"records", records_}};
    if (asked_.device.is_cpu()) all["threads"] = pp::num_threads();
    if (!left_out_.empty()) all["left_out"] = left_out_;
    pp::AtomicFile file("bench/networks", asked_.json);
    const std::string text = all.dump(1) + "\n";
    file.write(text.data(), text.size());
    file.commit();
  }

  const Asked& asked_;
  Clock::time_point begin_ = Clock::now();
  nlohmann::json records_ = nlohmann::json::array();
  std::vector<std::string> left_out_;
  std::string unknown_;
  bool ok_ = true;
};

void check(Asked& asked) {
  if (asked.precisions.empty())
    asked.precisions =
        asked.device.is_cpu() ? std::vector<std::string>{"fp32"} : std::vector<std::string>{"fp32", "tf32", "f16", "bf16"};
  for (const std::string& name : asked.precisions) (void)bench::network_precision(name);
  for (const std::string& name : asked.networks) {
    const auto& all = bench::kNetworkCases;
    pp::require<pp::Error>(std::any_of(all.begin(), all.end(), [&](const auto& what) { return what.name == name; }),
                           "--networks: no network of network_cases.hpp is called '", name, "'");
  }
  try {
    (void)std::regex(asked.match);
  } catch (const std::regex_error&) {
    throw pp::Error("--match: expected a regular expression, got '" + asked.match + "'");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Asked asked;
  const auto describe = [&](pp::program::Arguments& app, pp::program::Action& action) {
    pp::program::add_device(app, asked.device);
    app.add_option("--networks", asked.networks, "names in network_cases.hpp; default: all").separated_by(',');
    app.add_option("--match", asked.match, "only cases whose name matches this regular expression, such as 'mimi.*1x'");
    app.add_option("--precisions", asked.precisions,
                   "fp32, tf32, ieee, f16, bf16, f64; by default fp32 on the CPU, else fp32, tf32, f16, bf16")
        .separated_by(',');
    pp::program::add_threads(app);
    app.add_option("--time-budget", asked.time_budget, "seconds after which no new case begins").above_zero();
    app.add_option("--json", asked.json, "file for the records");
    action = [&] {
      pp::program::as_usage([&] {
        check(asked);
        return 0;
      });
      return Table(asked).time_all();
    };
  };
  return pp::program::run_main(argc, argv, "networks", "Times published networks at their full size.", describe);
}
