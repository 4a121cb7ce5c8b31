// Times ConvTranspose1d on a GPU: shapes of bench/shapes.hpp at their quoted batch, forward, dgrad and wgrad, in several
// precisions, by every algorithm that can, each result verified in float64 on a sample; cuDNN beside it where the build has it.
//   conv_transpose1d [--shapes A,B] [--directions forward,wgrad] [--precisions ieee,tf32,bf16,f16,f64] [--algorithms
//   direct,gemm]
//                    [--no-peers] [--no-sustained] [--json FILE]
// Exits with 1 where a result is wrong. bench/peers_torch_cuda.py times PyTorch on the shapes of the JSON file.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cuda/conv/conv.hpp"
#include "cuda/conv/plan.hpp"
#include "cuda/runtime.hpp"
#include "gpu_check.hpp"
#include "gpu_timing.hpp"
#include "shapes.hpp"
#include "tensor/error.hpp"
#include "tensor/tensor.hpp"
#ifdef POLYPHASE_BENCH_CUDNN
#include "cudnn_peer.hpp"
#endif

namespace {

using namespace polyphase;

struct Options {
  std::vector<std::string> shapes, directions = {"forward", "dgrad", "wgrad"}, precisions = {"ieee", "tf32", "bf16"},
                                   algorithms;
  bool no_peers = false, no_sustained = false;
  std::string json;
};

/// A row of the table's precision column: the tensors' dtype and what may be done to f32.
struct Mode {
  DType dtype;
  Precision precision;
};

Mode mode_of(const std::string& name) {
  static const std::map<std::string, Mode> modes = {
      {"ieee", {DType::f32, Precision::ieee}}, {"fp32", {DType::f32, Precision::fp32}},
      {"tf32", {DType::f32, Precision::tf32}}, {"bf16", {DType::bf16, Precision::fp32}},
      {"f16", {DType::f16, Precision::fp32}},  {"f64", {DType::f64, Precision::fp32}}};
  const auto found = modes.find(name);
  require<Error>(found != modes.end(), "--precisions: expected ieee, fp32, tf32, bf16, f16 or f64, got '", name, "'");
  return found->second;
}

ConvDirection direction_of(const std::string& name) {
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad, ConvDirection::wgrad})
    if (concat(direction) == name) return direction;
  throw Error(concat("--directions: expected forward, dgrad or wgrad, got '", name, "'"));
}

/// What a result may be off by, over its root mean square: rounding of the operands or of the sums.
double allowed(const ConvProblem& p, ConvDirection direction, const Mode& mode) {
  const double terms = static_cast<double>(direction == ConvDirection::wgrad   ? p.N * p.L_in
                                           : direction == ConvDirection::dgrad ? p.channels_out_per_group() * p.K
                                                                               : p.channels_in_per_group() * p.K);
  if (mode.dtype == DType::f64) return 8 * 0x1p-53 * std::sqrt(terms);
  if (mode.dtype == DType::bf16) return 5 * 0x1p-8;
  if (mode.dtype == DType::f16) return 5 * 0x1p-11;
  if (mode.precision == Precision::tf32) return 6 * 0x1p-11;
  return 8 * 0x1p-24 * std::sqrt(terms) + 1e-6;
}

/// Random normal operands, several sets where one fits the L2.
struct Sets {
  struct Set {
    Tensor x, w, y;
  };
  std::vector<Set> sets;

  Sets(const ConvProblem& p, int l2_bytes) {
    const double bytes =
        static_cast<double>(size_of(p.dtype)) *
        (static_cast<double>(p.N) * (static_cast<double>(p.C_in * p.L_in) + static_cast<double>(p.C_out * p.L_out)) +
         static_cast<double>(p.C_in * p.channels_out_per_group() * p.K));
    const int count = static_cast<int>(std::clamp(std::ceil(3.0 * l2_bytes / bytes), 1.0, 16.0));
    const TensorOptions options{.dtype = p.dtype, .device = Device::cuda(0)};
    for (int i = 0; i < count; ++i)
      sets.push_back({Tensor::randn({p.N, p.C_in, p.L_in}, options),
                      Tensor::randn({p.C_in, p.channels_out_per_group(), p.K}, options),
                      Tensor::randn({p.N, p.C_out, p.L_out}, options)});
  }
  Set& at(int i) { return sets[static_cast<std::size_t>(i) % sets.size()]; }
};

void run(const ConvProblem& p, ConvDirection direction, Sets::Set& set, Algorithm algorithm, Precision precision,
         cudaStream_t stream) {
  void *x = set.x.raw(), *w = set.w.raw(), *y = set.y.raw();
  switch (direction) {
    case ConvDirection::forward:
      return cuda::conv_forward(p, x, w, nullptr, y, algorithm, precision, 0, stream);
    case ConvDirection::dgrad:
      return cuda::conv_dgrad(p, y, w, nullptr, x, algorithm, precision, 0, stream);
    case ConvDirection::wgrad:
      return cuda::conv_wgrad(p, x, y, w, algorithm, precision, 0, stream);
  }
}

/// Both ends of the result and random elements between.
std::vector<std::int64_t> samples_of(const ConvProblem& p, ConvDirection direction) {
  const std::int64_t size = direction == ConvDirection::forward ? p.N * p.C_out * p.L_out
                            : direction == ConvDirection::dgrad ? p.N * p.C_in * p.L_in
                                                                : p.C_in * p.channels_out_per_group() * p.K;
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(size, 64); ++i) samples.insert(samples.end(), {i, size - 1 - i});
  std::mt19937_64 random(7);
  const int count = direction == ConvDirection::wgrad ? 400 : 20000;
  for (int i = 0; i < count; ++i) samples.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size)));
  return samples;
}

/// A fresh set whose result is poisoned, computed once and compared with the formula.
double verify(const ConvProblem& p, ConvDirection direction, Sets::Set& set, Algorithm algorithm, Precision precision,
              cudaStream_t stream) {
  const Tensor& result = direction == ConvDirection::forward ? set.y : direction == ConvDirection::dgrad ? set.x : set.w;
  CHECK_CUDA(cudaMemsetAsync(result.raw(), 0xff, static_cast<std::size_t>(result.numel()) * size_of(p.dtype), stream));
  run(p, direction, set, algorithm, precision, stream);
  return bench::sampled_error(p, direction, {set.x.raw(), set.w.raw(), set.y.raw()}, samples_of(p, direction), stream);
}

nlohmann::ordered_json to_json(const ConvProblem& p) {
  return {{"N", p.N}, {"C_in", p.C_in}, {"C_out", p.C_out}, {"L_in", p.L_in}, {"L_out", p.L_out}, {"K", p.K},
          {"S", p.S}, {"P_l", p.P_l},   {"P_r", p.P_r},     {"OP", p.OP},     {"D", p.D},         {"G", p.G}};
}

/// cuDNN's times of one problem, by name.
std::map<std::string, double> peers_of([[maybe_unused]] const ConvProblem& p, [[maybe_unused]] ConvDirection direction,
                                       [[maybe_unused]] const Mode& mode, [[maybe_unused]] const std::string& precision,
                                       [[maybe_unused]] Sets& sets, [[maybe_unused]] cudaStream_t stream) {
  std::map<std::string, double> peers;
#ifdef POLYPHASE_BENCH_CUDNN
  for (const bench::Layout layout : {bench::Layout::ncl, bench::Layout::nhwc}) {
    const auto peer = bench::make_cudnn_peer(p, direction, mode.precision, layout, stream);
    if (!peer) continue;
    const bench::Timing timing = bench::time_launches(
        [&](int i) {
          Sets::Set& set = sets.at(i);
          peer->run(set.x.raw(), set.w.raw(), set.y.raw());
        },
        stream, false);
    peers["cudnn_" + (precision == "ieee" ? "fp32" : precision) + (layout == bench::Layout::ncl ? "_ncl" : "_nhwc")] =
        timing.us_burst;
  }
#endif
  return peers;
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), stream_(cuda::current_stream(0)), bandwidth_(bench::copy_bandwidth(stream_)) {
    for (const std::string& name : options.precisions)
      rates_[name] = bench::blas_rate(mode_of(name).dtype, mode_of(name).precision, stream_);
    std::cout << cuda::properties(0).name << ": copy " << bandwidth_ * 1e-12 << " TB/s; cuBLAS";
    for (const auto& [name, rate] : rates_) std::cout << ' ' << name << ' ' << rate * 1e-12;
    std::cout << " TFLOP/s\nshape | direction | precision | algorithm | us | TFLOP/s | GB/s | % of roofline | x cuDNN (ncl) | "
                 "x cuDNN (best)\n";
  }

  void shape(const bench::Shape& shape) {
    for (const std::string& precision : options_.precisions) {
      const Mode mode = mode_of(precision);
      ConvProblem p = bench::problem_of(shape);
      p.dtype = mode.dtype;
      for (const std::string& name : options_.directions) {
        const ConvDirection direction = direction_of(name);
        Sets sets(p, cuda::properties(0).l2_bytes);  // fresh: the direction before has overwritten one operand
        std::map<std::string, double> peers;
        if (!options_.no_peers) peers = peers_of(p, direction, mode, precision, sets, stream_);
        for (const Algorithm algorithm : algorithms_for(p, direction, mode))
          one(shape, p, direction, mode, precision, algorithm, sets, peers);
      }
    }
  }

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] nlohmann::ordered_json json() const {
    nlohmann::ordered_json root = {
        {"suite", "conv_transpose1d"}, {"device", cuda::properties(0).name}, {"copy_bytes_per_s", bandwidth_}};
    root["blas_operations_per_s"] = rates_;
#ifdef POLYPHASE_BENCH_CUDNN
    root["cudnn"] = bench::cudnn_version();
#endif
    root["records"] = records_;
    return root;
  }

 private:
  [[nodiscard]] std::vector<Algorithm> algorithms_for(const ConvProblem& p, ConvDirection direction, const Mode& mode) const {
    std::vector<Algorithm> wanted;
    for (const std::string& name : options_.algorithms) wanted.push_back(parse_algorithm(name));
    if (wanted.empty()) wanted = {Algorithm::direct, Algorithm::depthwise, Algorithm::tensor_core, Algorithm::gemm};
    std::erase_if(wanted, [&](Algorithm algorithm) {
      return cuda::can_implement(p, direction, algorithm, mode.precision, 0).has_value();
    });
    return wanted;
  }

  void one(const bench::Shape& shape, const ConvProblem& p, ConvDirection direction, const Mode& mode,
           const std::string& precision, Algorithm algorithm, Sets& sets, const std::map<std::string, double>& peers) {
    const double error = verify(p, direction, sets.at(0), algorithm, mode.precision, stream_);
    const bool right = error <= allowed(p, direction, mode);
    ok_ = ok_ && right;
    const bench::Timing timing = bench::time_launches(
        [&](int i) { run(p, direction, sets.at(i), algorithm, mode.precision, stream_); }, stream_, !options_.no_sustained);
    const double bytes =
        static_cast<double>(size_of(p.dtype)) *
        static_cast<double>(p.N * p.C_in * p.L_in + p.N * p.C_out * p.L_out + p.C_in * p.channels_out_per_group() * p.K);
    const double roofline = 1e6 * std::max(bytes / bandwidth_, p.operations() / rates_.at(precision));
    double best = 0, ncl = 0;
    for (const auto& [name, us] : peers) {
      if (best == 0 || us < best) best = us;
      if (name.ends_with("_ncl")) ncl = us;
    }
    std::cout << shape.name << " | " << direction << " | " << precision << " | " << algorithm << " | " << std::fixed
              << std::setprecision(1) << timing.us_burst << " | " << p.operations() / timing.us_burst * 1e-6 << " | "
              << bytes / timing.us_burst * 1e-3 << " | " << 100 * roofline / timing.us_burst << std::setprecision(2) << " | "
              << ncl / timing.us_burst << " | " << best / timing.us_burst << std::defaultfloat
              << (right ? "" : concat(" | WRONG: error ", error)) << std::endl;
    records_.push_back({{"suite", "conv_transpose1d"},
                        {"shape", shape.name},
                        {"problem", to_json(p)},
                        {"direction", concat(direction)},
                        {"precision", precision},
                        {"algorithm", name_of(algorithm)},
                        {"us_burst", timing.us_burst},
                        {"us_sustained", timing.us_sustained},
                        {"clock_mhz", timing.clock_mhz},
                        {"error", error},
                        {"roofline_us", roofline},
                        {"peers", peers}});
  }

  const Options& options_;
  cudaStream_t stream_;
  double bandwidth_;
  std::map<std::string, double> rates_;
  nlohmann::ordered_json records_ = nlohmann::ordered_json::array();
  bool ok_ = true;
};

int run_all(const Options& options) {
  require<DeviceError>(cuda::device_count() > 0, "bench: ", cuda::unavailable_reason());
  Bench bench(options);
  for (const bench::Shape& shape : bench::kShapes)
    if (options.shapes.empty() || std::count(options.shapes.begin(), options.shapes.end(), shape.name) > 0) bench.shape(shape);
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << bench.json().dump(1) << '\n';
    file.close();
    require<Error>(file.good(), "cannot write '", options.json, "'");
  }
  return bench.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("times ConvTranspose1d on a GPU beside cuDNN");
  app.add_option("--shapes", options.shapes, "names in bench/shapes.hpp; all without")->delimiter(',');
  app.add_option("--directions", options.directions, "forward, dgrad, wgrad")->delimiter(',');
  app.add_option("--precisions", options.precisions, "ieee, fp32, tf32, bf16, f16, f64")->delimiter(',');
  app.add_option("--algorithms", options.algorithms, "direct, depthwise, gemm; all that can without")->delimiter(',');
  app.add_flag("--no-peers", options.no_peers, "leave cuDNN out");
  app.add_flag("--no-sustained", options.no_sustained, "bursts only");
  app.add_option("--json", options.json, "file for the records");
  CLI11_PARSE(app, argc, argv);
  try {
    return run_all(options);
  } catch (const std::exception& error) {
    std::cerr << "conv_transpose1d: " << error.what() << '\n';
    return 1;
  }
}
