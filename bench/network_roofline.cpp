// The roofline of a whole network: each part's time next to what arithmetic and memory allow.
//   network_roofline --match REGEX [--device cuda:0] [--precision f16] [--threads T] [--json FILE]
// The network runs part by part in inference. A part is what layers/fused.hpp runs in one pass, or a whole Residual, or the sum
// of branches without the branches. On a GPU a part is timed as a CUDA graph of its own; the branches of a small input, which
// the graph of the network runs concurrently, come one after another here. Its floor is the larger of two times: its
// multiply-adds at the rate of a large matrix product in the precision (in fp32 a third of f16's, because it takes three
// products), and its input, output and weights at the speed of a copy. Both rates are measured first. bench/report.py draws the
// picture.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <typeinfo>
#include <vector>

#include "autograd/no_grad.hpp"
#include "cpu/threads.hpp"
#include "cuda/cuda.hpp"
#include "io/atomic_file.hpp"
#include "layers/containers/mean_of_branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sum_of_branches.hpp"
#include "layers/fused.hpp"
#include "layers/streaming/module_stream.hpp"
#include "network_timing.hpp"
#include "network_work.hpp"
#include "ops/activations.hpp"
#include "ops/linear.hpp"
#include "ops/mac_counter.hpp"
#include "program/options.hpp"
#include "program/program.hpp"

namespace {

namespace pp = polyphase;
namespace bench = polyphase::bench;

struct Asked {
  pp::Device device = pp::Device::cpu();
  std::string match, precision = "fp32", json;
};

struct Part {
  std::string name, what;
  double us = 0, macs = 0, bytes = 0;
  std::size_t launches = 0;
};

/// The median of five series of about 2 ms.
double median_us(const std::function<void()>& run, pp::Device device) {
  const double once = std::min(bench::us_of(1, run, device), bench::us_of(1, run, device));
  const int count = static_cast<int>(std::clamp(2000 / once, 1.0, 100.0));
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) times.push_back(bench::us_of(count, run, device));
  std::sort(times.begin(), times.end());
  return times[2];
}

double bytes_of(const pp::Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(pp::size_of(tensor.dtype()));
}

/// Rates of the same run.
struct Rates {
  double bytes = 0, macs = 0;  ///< per microsecond
  Rates(const bench::NetworkPrecision& precision, pp::Device device) {
    const std::int64_t words = device.is_cuda() ? std::int64_t{1} << 28 : std::int64_t{1} << 25;
    const pp::Tensor from = pp::Tensor::ones({words});
    pp::Tensor to = pp::Tensor::empty({words});
    bytes = 2 * bytes_of(from) / median_us([&] { to.copy_(from); }, device);
    // Products of two halves, three of them for each number.
    const bool is_split = precision.dtype == pp::DType::f32 && precision.precision == pp::Precision::fp32 && device.is_cuda();
    const pp::PrecisionGuard guard(precision.precision);
    const std::int64_t n = device.is_cuda() ? 8192 : 1024;
    const pp::Tensor a = pp::Tensor::randn({n, n}).to(is_split ? pp::DType::f16 : precision.dtype);
    macs =
        static_cast<double>(n * n * n) / median_us([&] { static_cast<void>(pp::matmul(a, a)); }, device) / (is_split ? 3 : 1);
  }
  [[nodiscard]] double floor_us(const Part& part) const { return std::max(part.bytes / bytes, part.macs / macs); }
};

/// Lists the whole names of the modules of a network.
class Names : public pp::Visitor {
 public:
  explicit Names(pp::Module& net) { net.visit(*this); }
  void parameter(std::string_view, pp::Tensor&) override {}
  void buffer(std::string_view, pp::Tensor&) override {}
  void module(std::string_view name, pp::Module& child) override {
    const std::string above = path_;
    if (!name.empty()) path_ += pp::concat(path_.empty() ? "" : ".", name);
    names_.emplace(&child, path_);
    child.visit(*this);
    path_ = above;
  }
  /// A module's name, with that of its first layer if it is a container.
  [[nodiscard]] std::string of(pp::Module& module) const {
    const auto found = names_.find(&module);
    std::string name = found == names_.end() ? "" : found->second;
    if (typeid(module) != typeid(pp::Residual)) return name;
    const pp::NamedTensors parameters = module.named_parameters();
    if (parameters.empty()) return name;
    const std::string& first = parameters.front().first;
    return name + (name.empty() ? "" : ".") + first.substr(0, first.rfind('.'));
  }

 private:
  std::string path_;
  std::map<const pp::Module*, std::string> names_;
};

class Parts {
 public:
  Parts(pp::Module& net, pp::Device device) : names_(net), device_(device) {}

  /// Runs modules one after another and lists their parts.
  pp::Tensor run(pp::layers::Modules modules, pp::Tensor x) {
    for (const pp::layers::Pass& pass : pp::layers::passes_of(modules, false)) {
      pp::Module& main = *modules[pass.main];
      const auto own = modules.subspan(pass.first, pass.length);
      if (typeid(main) == typeid(pp::Sequential))
        x = run(static_cast<pp::Sequential&>(main).modules(), std::move(x));
      else if (typeid(main) == typeid(pp::MeanOfBranches))
        x = run_branches(own, main, static_cast<pp::MeanOfBranches&>(main).modules(), x);
      else if (typeid(main) == typeid(pp::SumOfBranches))
        x = run_branches(own, main, static_cast<pp::SumOfBranches&>(main).modules(), x);
      else
        x = run_part(own, main, x);
    }
    return x;
  }

  [[nodiscard]] const std::vector<Part>& all() const { return parts_; }

 private:
  pp::Tensor run_part(pp::layers::Modules own, pp::Module& main, const pp::Tensor& x) {
    Part part{names_.of(main), ""};
    pp::Tensor y;
    {
      const pp::ops::MacCounter counter;
      y = pp::layers::forward_all(own, x);
      part.macs = counter.count();
    }
    part.bytes = bytes_of(x) + bytes_of(y);
    for (const auto& module : own) {
      part.what += (part.what.empty() ? "" : " + ") + pp::layers::short_type_name(*module);
      for (const pp::Tensor& weight : module->parameters()) part.bytes += bytes_of(weight);
    }
    time(part, [&] { y = pp::layers::forward_all(own, x); });
    parts_.push_back(part);
    return y;
  }

  /// The branches, each of which reads x, and the sum of what they make.
  pp::Tensor run_branches(pp::layers::Modules own, pp::Module& main, pp::layers::Modules branches, const pp::Tensor& x) {
    std::vector<pp::Tensor> results;
    for (std::size_t i = 0; i < branches.size(); ++i) results.push_back(run(branches.subspan(i, 1), x));
    Part part{names_.of(main), pp::concat(pp::layers::short_type_name(main), " of ", branches.size())};
    pp::Tensor sum;
    time(part, [&] { sum = pp::average_of(results, static_cast<double>(results.size())); });
    part.bytes = bytes_of(sum) * static_cast<double>(branches.size() + 1);
    parts_.push_back(part);
    return pp::layers::forward_all(own, x);
  }

  void time(Part& part, const std::function<void()>& work) const {
    work();
    if (!device_.is_cuda()) {
      part.us = median_us(work, device_);
      return;
    }
    pp::cuda::Graph graph = pp::cuda::capture(work, device_.index);
    part.launches = graph.steps();
    part.us = median_us([&] { graph.replay(); }, device_);
  }

  Names names_;
  pp::Device device_;
  std::vector<Part> parts_;
};

/// The body of a network, its only child.
pp::Sequential& body_of(pp::Network& net) {
  struct Child : pp::Visitor {
    pp::Module* found = nullptr;
    void parameter(std::string_view, pp::Tensor&) override {}
    void buffer(std::string_view, pp::Tensor&) override {}
    void module(std::string_view, pp::Module& child) override { found = &child; }
  } child;
  net.visit(child);
  return dynamic_cast<pp::Sequential&>(*child.found);
}

const bench::NetworkCase& case_of(const std::string& match) {
  const std::regex regex(match);
  const bench::NetworkCase* found = nullptr;
  for (const bench::NetworkCase& what : bench::kNetworkCases) {
    if (what.run != bench::NetworkRun::forward || !std::regex_search(bench::name_of(what), regex)) continue;
    pp::require<pp::Error>(found == nullptr, "--match: expected one case, got ", found != nullptr ? bench::name_of(*found) : "",
                           " and ", bench::name_of(what));
    found = &what;
  }
  pp::require<pp::Error>(found != nullptr, "--match: no forward case of network_cases.hpp matches '", match, "'");
  return *found;
}

void save(const Asked& asked, const std::string& name, const Rates& rates, double whole, const std::vector<Part>& parts) {
  nlohmann::json list = nlohmann::json::array();
  for (const Part& part : parts)
    list.push_back({{"name", part.name},
                    {"what", part.what},
                    {"us", part.us},
                    {"floor_us", rates.floor_us(part)},
                    {"macs", part.macs},
                    {"bytes", part.bytes},
                    {"launches", part.launches}});
  const nlohmann::json all{{"suite", "network_roofline"},
                           {"network", name},
                           {"precision", asked.precision},
                           {"device", pp::to_string(asked.device)},
                           {"threads", pp::num_threads()},
                           {"copy_gb_s", rates.bytes / 1e3},
                           {"tflop_s", 2 * rates.macs / 1e6},
                           {"us_whole", whole},
                           {"parts", list}};
  pp::AtomicFile file("bench/network_roofline", asked.json);
  const std::string text = all.dump(1) + "\n";
  file.write(text.data(), text.size());
  file.commit();
}

int measure(const Asked& asked, const bench::NetworkCase& what) {
  const bench::NetworkPrecision precision = bench::network_precision(asked.precision);
  const pp::DeviceGuard device(asked.device);
  const pp::NoGradGuard no_grad;
  const std::string name = bench::name_of(what);
  const Rates rates(precision, asked.device);
  const pp::PrecisionGuard guard(precision.precision);
  bench::NetworkWork work(what, precision, asked.device);
  pp::Sequential& body = body_of(work.net());
  Parts parts(work.net(), asked.device);
  (void)parts.run(body.modules(), work.input());
  const double whole = median_us([&] { work.run(); }, asked.device);
  std::printf("%s %s on %s: copy %.0f GB/s, products %.3g TFLOP/s\n%-34s %-34s %10s %10s %8s %8s\n", name.c_str(),
              asked.precision.c_str(), pp::to_string(asked.device).c_str(), rates.bytes / 1e3, 2 * rates.macs / 1e6, "part", "",
              "us", "floor us", "% of it", "launches");
  double sum = 0, floor = 0;
  for (const Part& part : parts.all()) {
    const double least = rates.floor_us(part);
    sum += part.us, floor += least;
    std::printf("%-34s %-34s %10.1f %10.1f %8.0f %8zu\n", part.name.c_str(), part.what.c_str(), part.us, least,
                part.us > 0 ? 100 * least / part.us : 0, part.launches);
  }
  std::printf("%-69s %10.1f %10.1f %8.0f\n%-69s %10.1f\n", "all parts", sum, floor, 100 * floor / sum,
              "the network in one call, eager", whole);
  if (!asked.json.empty()) save(asked, name, rates, whole, parts.all());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Asked asked;
  const auto describe = [&](pp::program::Arguments& app, pp::program::Action& action) {
    pp::program::add_device(app, asked.device);
    app.add_option("--match", asked.match,
                   "the forward case whose name matches this regular expression, such as hifigan_v1_1x32");
    app.add_option("--precision", asked.precision, "fp32, tf32, ieee, f16, bf16 or f64 (default fp32)").shows_default();
    pp::program::add_threads(app);
    app.add_option("--json", asked.json, "file for the result");
    action = [&] {
      const bench::NetworkCase& what = pp::program::as_usage([&]() -> const bench::NetworkCase& {
        (void)bench::network_precision(asked.precision);
        return case_of(asked.match);
      });
      return measure(asked, what);
    };
  };
  return pp::program::run_main(argc, argv, "network_roofline", "Times the parts of a network next to what the machine allows.",
                               describe);
}
