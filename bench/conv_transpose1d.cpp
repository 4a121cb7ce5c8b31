// Times ConvTranspose1d on a GPU: shapes of shapes.hpp at their batch, forward, dgrad, wgrad and all three (a training step),
// in several precisions, with every algorithm that can compute them, in turns with cuDNN (both layouts, its fastest algorithm)
// if the build has it. Every result, cuDNN's too, is verified in float64 on a sample. Packed weights are cached from call to
// call, as in a layer, except in the step, where training would have changed them.
//   conv_transpose1d [--shapes A,B,rest] [--directions forward,step] [--precisions fp32,tf32,bf16,f16,ieee,f64]
//                    [--algorithms direct,gemm] [--no-peers] [--forms] [--sustained] [--time-budget SECONDS] [--progress]
//                    [--json FILE]
// Exits with 1 if a result of ours is wrong, 2 on a bad argument. The file is written again after each case, so that a stopped
// run leaves its results. bench/peers_torch_cuda.py times PyTorch on the cases of the file.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "choice.hpp"
#include "contender.hpp"
#include "conv_forms.hpp"
#include "conv_options.hpp"
#include "cuda/conv/choice/plan.hpp"
#include "cuda/conv/conv.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "gpu_case.hpp"
#include "gpu_timing.hpp"
#include "program/program.hpp"
#include "progress.hpp"
#include "shapes.hpp"
#include "tensor/error.hpp"
#ifdef POLYPHASE_BENCH_CUDNN
#include "cudnn_peer.hpp"
#endif

namespace {

using namespace polyphase;
using bench::Case;
using bench::Choice;
using bench::Contender;
using bench::Options;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr double kOfSustained = 0.1;  // share of a time budget

Json to_json(const ConvProblem& p) {
  return {{"N", p.N}, {"C_in", p.C_in}, {"C_out", p.C_out}, {"L_in", p.L_in}, {"L_out", p.L_out}, {"K", p.K},
          {"S", p.S}, {"P_l", p.P_l},   {"P_r", p.P_r},     {"OP", p.OP},     {"D", p.D},         {"G", p.G}};
}

std::string quotient(double a, double b) {
  if (a == 0) return "-";
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << a / b;
  return text.str();
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        gpu_(cuda::properties(0)),
        stream_(cuda::current_stream(0)),
        end_(Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(options.time_budget * 1e6))),
        progress_(options.progress ? &std::cerr : nullptr),
        bandwidth_(bench::copy_bandwidth(stream_)) {
    for (const std::string& name : options.precisions)
      rates_[name] = bench::blas_rate(bench::mode_of(name).dtype, bench::mode_of(name).precision, stream_);
    std::cout << gpu_.name << ", driver " << bench::driver_version() << ": copy " << bandwidth_ * 1e-12 << " TB/s; cuBLAS";
    for (const auto& [name, rate] : rates_) std::cout << ' ' << name << ' ' << rate * 1e-12;
    std::cout << " TFLOP/s; cuDNN " << cudnn()
              << "\nshape | direction | precision | algorithm | us | TFLOP/s | GB/s | % of roofline | x cuDNN (its layout) | x "
                 "cuDNN (its best) | us with packing"
              << std::endl;
  }

  /// Runs forward, or all requested directions except forward.
  void run(const bench::Shape& shape, const std::string& precision, bool is_forward) {
    const bench::Mode mode = bench::mode_of(precision);
    ConvProblem p = bench::problem_of(shape);
    p.dtype = mode.dtype;
    std::optional<bench::Sets> sets;
#ifdef POLYPHASE_BENCH_CUDNN
    peers_.clear();
#endif
    for (const std::string& direction : options_.directions) {
      if ((direction == "forward") != is_forward) continue;
      const Case what{shape, p, bench::pass_of(direction), precision, mode};
      if (is_over(options_.sustained ? kOfSustained : 0)) {
        left_out_.push_back(what.name());
        continue;
      }
      if (!sets) fill(sets, p);
      one(what, *sets);
      save();
      progress_.done(what.name());
    }
  }

  /// Adds the sustained time (without rests) of each chosen algorithm to the records of a shape and precision.
  void sustain(const bench::Shape& shape, const std::string& precision) {
    const bench::Mode mode = bench::mode_of(precision);
    ConvProblem p = bench::problem_of(shape);
    p.dtype = mode.dtype;
    std::optional<bench::Sets> sets;
    for (Json& record : records_) {
      if (!record.contains("chosen") || record["shape"] != shape.name || record["precision"] != precision || is_over(0))
        continue;
      if (!sets) fill(sets, p);
      const auto span = progress_.span("sustained");
      const ConvDirection direction = bench::pass_of(record["direction"]).directions.front();
      const Algorithm algorithm = parse_algorithm(record["algorithm"].get<std::string>());
      const auto launch = [&](int i) {
        bench::run_own(p, direction, sets->at(i), algorithm, mode.precision, bench::PackedWeights::kept, stream_);
      };
      for (int i = 0; i < sets->size(); ++i) launch(i);
      const bench::Sustained sustained = bench::time_sustained(launch, record["us_burst"], stream_);
      record["us_sustained"] = sustained.us;
      record["clock_mhz"] = sustained.clock_mhz;
      save();
    }
  }

  /// Prints the losses where the plan's choice is not the fastest, and the cases that the time budget left out.
  void finish() {
    choices_.print(std::cout);
    std::cout << "seconds:" << std::setprecision(3);
    for (const auto& [purpose, seconds] : progress_.seconds()) std::cout << ' ' << purpose << ' ' << seconds;
    std::cout << '\n';
    if (!left_out_.empty())
      std::cout << "out of time: " << left_out_.size() << " cases left out, from " << left_out_.front() << " on\n";
    save();
  }

  [[nodiscard]] bool ok() const { return ok_; }

 private:
  /// Whether less than the share `share` of the budget is left.
  [[nodiscard]] bool is_over(double share) const {
    const auto left = std::chrono::duration<double>(end_ - Clock::now()).count();
    return options_.time_budget > 0 && left <= share * options_.time_budget;
  }

  void fill(std::optional<bench::Sets>& sets, const ConvProblem& p) {
    const auto span = progress_.span("operands");
    sets.emplace(p, gpu_.l2_bytes);
    CHECK_CUDA(cudaStreamSynchronize(stream_));
  }

  /// Runs with --forms, and runs on Hopper without wgmma, make different records of the same cases.
  [[nodiscard]] std::string suite() const {
    if (gpu_.arch() == 90 && cuda::tensor_core::uses_mma(90)) return "conv_transpose1d_sm80";
    return options_.forms ? "conv_forms" : "conv_transpose1d";
  }

  [[nodiscard]] static std::string cudnn() {
#ifdef POLYPHASE_BENCH_CUDNN
    return bench::cudnn_version();
#else
    return "not in this build";
#endif
  }

  [[nodiscard]] std::vector<Algorithm> algorithms_for(const Case& what) const {
    std::vector<Algorithm> wanted;
    for (const std::string& name : options_.algorithms) wanted.push_back(parse_algorithm(name));
    if (wanted.empty() && what.pass.directions.size() > 1) wanted = {Algorithm::automatic, Algorithm::gemm};
    if (wanted.empty()) wanted = {Algorithm::direct, Algorithm::depthwise, Algorithm::tensor_core, Algorithm::gemm};
    std::erase_if(wanted, [&](Algorithm algorithm) {
      return std::any_of(what.pass.directions.begin(), what.pass.directions.end(), [&](ConvDirection direction) {
        return cuda::can_implement(what.problem, direction, algorithm, what.mode.precision, 0).has_value();
      });
    });
    return wanted;
  }

  void add_forms(const Case& what, bench::Sets& sets, std::vector<Contender>& contenders) {
    if (!options_.forms || what.pass.directions.size() > 1) return;
    const ConvDirection direction = what.pass.directions.front();
    const Algorithm chosen = cuda::make_conv_plan({what.problem, direction, what.mode.precision}).algorithm;
    for (bench::Form& form : bench::other_forms(what.problem, direction, chosen, what.mode.precision, sets, stream_))
      contenders.push_back({.name = std::move(form.name), .is_form = true, .run = std::move(form.run)});
  }

  /// For forward, tensor_core is also timed with weights that are packed in each call.
  void add_own(const Case& what, std::vector<Contender>& contenders) {
    const bool is_step = what.pass.directions.size() > 1;
    for (const Algorithm algorithm : algorithms_for(what)) {
      add_own(what, algorithm, is_step ? bench::PackedWeights::made : bench::PackedWeights::kept, contenders);
      if (algorithm == Algorithm::tensor_core && what.pass.name == "forward")
        add_own(what, algorithm, bench::PackedWeights::made, contenders);
    }
  }
  void add_own(const Case& what, Algorithm algorithm, bench::PackedWeights weights, std::vector<Contender>& contenders) {
    const bool packs = what.pass.name != "wgrad" && (algorithm == Algorithm::tensor_core || algorithm == Algorithm::automatic);
    contenders.push_back({.name = std::string(name_of(algorithm)),
                          .algorithm = algorithm,
                          .weights = packs ? std::optional(weights) : std::nullopt,
                          .run = [this, &what, algorithm, weights](bench::Sets::Set& set) {
                            for (const ConvDirection direction : what.pass.directions)
                              bench::run_own(what.problem, direction, set, algorithm, what.mode.precision, weights, stream_);
                          }});
  }

  /// cuDNN in both layouts; if it has no algorithm, the reason is printed.
  void add_peers([[maybe_unused]] const Case& what, [[maybe_unused]] bench::Sets& sets,
                 [[maybe_unused]] std::vector<Contender>& contenders) {
#ifdef POLYPHASE_BENCH_CUDNN
    if (options_.no_peers) return;
    for (const bench::Layout layout : {bench::Layout::ncl, bench::Layout::nhwc}) {
      const std::string name =
          "cudnn_" + (what.precision == "ieee" ? "fp32" : what.precision) + (layout == bench::Layout::ncl ? "_ncl" : "_nhwc");
      std::vector<std::shared_ptr<bench::CudnnPeer>> peers;
      for (const ConvDirection direction : what.pass.directions)
        peers.push_back(peer(what, direction, layout, name, sets.at(0)));
      if (std::count(peers.begin(), peers.end(), nullptr) > 0) continue;
      contenders.push_back({.name = name, .run = [peers, &what](bench::Sets::Set& set) {
                              for (std::size_t i = 0; i < peers.size(); ++i)
                                peers[i]->run(set.operands(what.pass.directions[i]));
                            }});
    }
#endif
  }

#ifdef POLYPHASE_BENCH_CUDNN
  /// Searched once; a step uses the results of its directions.
  std::shared_ptr<bench::CudnnPeer> peer(const Case& what, ConvDirection direction, bench::Layout layout,
                                         const std::string& name, const bench::Sets::Set& set) {
    const auto key = std::pair(direction, layout);
    const auto known = peers_.find(key);
    if (known != peers_.end()) return known->second;
    const auto span = progress_.span("search");
    std::string reason;
    std::shared_ptr<bench::CudnnPeer> made =
        bench::make_cudnn_peer(what.problem, direction, what.mode.precision, layout, set.operands(direction), stream_,
                               searched_[concat(what.shape.name, what.precision, direction, name)], reason);
    if (!made) std::cout << what.name() << ": no " << name << " for " << direction << ": " << reason << '\n';
    return peers_.emplace(key, made).first->second;
  }
#endif

  /// Whether the contender is timed. Ours are also timed if they are wrong, with a message; a contender that throws is not.
  bool verified(const Case& what, bench::Sets& sets, Contender& contender) {
    const auto span = progress_.span("verification");
    try {
      const std::uint64_t before = cuda::computed_again(0);
      contender.verdict = bench::verify(
          what.problem, what.pass, what.mode, sets.at(0), [&] { contender.run(sets.at(0)); }, contender.name.ends_with("_nhwc"),
          stream_);
      const bool repairs = contender.is_form || contender.algorithm == Algorithm::tensor_core;
      for (int i = 1; repairs && i < sets.size(); ++i) contender.run(sets.at(i));
      contender.again = cuda::computed_again(0) - before;
    } catch (const Error& error) {
      std::cout << what.name() << ": " << contender.name << " failed: " << error.what() << std::endl;
      ok_ = ok_ && !contender.algorithm;
      return false;
    }
    if (contender.algorithm || contender.verdict.right(contender.is_peer() ? bench::kPeersShare : 1)) return true;
    std::cout << what.name() << ": " << contender.name << " is wrong by " << contender.verdict.error << ", left out\n";
    return false;
  }

  void one(const Case& what, bench::Sets& sets) {
    std::vector<Contender> all, contenders;
    add_own(what, all);
    add_forms(what, sets, all);
    add_peers(what, sets, all);
    for (Contender& contender : all)
      if (verified(what, sets, contender)) contenders.push_back(contender);
    time(sets, contenders);
    const Choice choice = judge_choice(what, contenders);
    for (const Contender& contender : contenders)
      if (contender.algorithm && !contender.shows_packing(what)) report(what, contender, contenders, choice);
  }

  void time(bench::Sets& sets, std::vector<Contender>& contenders) {
    const auto span = progress_.span("bursts");
    std::vector<bench::Launch> launches;
    for (const Contender& contender : contenders) {
      // Packed weights are made once for each set.
      const bool keeps = contender.weights == bench::PackedWeights::kept || contender.is_form;
      for (int i = 0; keeps && i < sets.size(); ++i) contender.run(sets.at(i));
      launches.push_back([&](int i) { contender.run(sets.at(i)); });
    }
    // Most of the thirty kernels and tilings are far from the fastest.
    const bench::Patience patience = options_.forms ? bench::Patience{1.35, false} : bench::Patience{};
    const std::vector<double> times = bench::time_alternating(launches, stream_, patience);
    for (std::size_t i = 0; i < times.size(); ++i) contenders[i].us = times[i];
  }

  /// The library's choice, compared with the fastest contender that was timed.
  Choice judge_choice(const Case& what, const std::vector<Contender>& contenders) {
    if (what.pass.directions.size() > 1) return {};
    Choice choice{cuda::make_conv_plan({what.problem, what.pass.directions.front(), what.mode.precision}).algorithm, {}};
    const Contender *fastest = nullptr, *own = nullptr;
    int timed = 0;
    for (const Contender& contender : contenders) {
      if (contender.is_peer() || contender.shows_packing(what)) continue;
      ++timed;
      if (fastest == nullptr || contender.us < fastest->us) fastest = &contender;
      if (contender.algorithm == choice.algorithm) own = &contender;
    }
    if (timed < 2 || own == nullptr) return choice;
    choice.lost = own->us / fastest->us - 1;
    choices_.add(what.name(), own->us / fastest->us, fastest->name);
    if (options_.forms) tell_forms(what, contenders, *own, *fastest);
    return choice;
  }

  /// Prints a line for a case: the chosen kernel, the fastest one and the others.
  void tell_forms(const Case& what, const std::vector<Contender>& contenders, const Contender& own, const Contender& fastest) {
    std::cout << what.name() << " | "
              << bench::chosen_kernel(what.problem, what.pass.directions.front(), *own.algorithm, what.mode.precision)
              << std::fixed << std::setprecision(1) << ' ' << own.us << " us | lost " << 100 * (own.us / fastest.us - 1)
              << " %";
    std::vector<const Contender*> others;
    for (const Contender& contender : contenders)
      if (&contender != &own && !contender.is_peer() && !contender.shows_packing(what)) others.push_back(&contender);
    std::sort(others.begin(), others.end(), [](const auto* a, const auto* b) { return a->us < b->us; });
    for (const Contender* other : others) std::cout << " | " << other->name << ' ' << other->us;
    std::cout << std::defaultfloat << std::endl;
  }

  void report(const Case& what, const Contender& contender, const std::vector<Contender>& contenders, const Choice& choice) {
    const bool is_chosen = contender.algorithm == choice.algorithm;
    const bool right = contender.verdict.right();
    ok_ = ok_ && right;
    const double bytes = bench::bytes_of(what.problem, what.pass);
    const double operations = what.problem.operations() * static_cast<double>(what.pass.directions.size());
    const double roofline = 1e6 * std::max(bytes / bandwidth_, operations / rates_.at(what.precision));
    std::map<std::string, double> peers;
    double best = 0, ncl = 0, with_packing = 0;
    for (const Contender& other : contenders) {
      if (other.shows_packing(what)) {
        if (other.algorithm == contender.algorithm) with_packing = other.us;
        continue;
      }
      if (other.is_form) continue;
      if (other.algorithm && (other.algorithm != Algorithm::gemm || contender.algorithm == Algorithm::gemm)) continue;
      peers[other.name] = other.us;
      if (other.algorithm) continue;
      if (best == 0 || other.us < best) best = other.us;
      if (other.name.ends_with("_ncl")) ncl = other.us;
    }
    std::cout << what.shape.name << " | " << what.pass.name << " | " << what.precision << " | " << contender.name
              << (is_chosen ? " *" : "") << " | " << std::fixed << std::setprecision(1) << contender.us << " | "
              << operations / contender.us * 1e-6 << " | " << bytes / contender.us * 1e-3 << " | "
              << 100 * roofline / contender.us << " | " << quotient(ncl, contender.us) << " | " << quotient(best, contender.us)
              << " | " << (quotient(with_packing, 1)) << std::defaultfloat
              << (right ? "" : concat(" | WRONG: error ", contender.verdict.error)) << std::endl;
    Json record = {{"suite", suite()},
                   {"shape", what.shape.name},
                   {"problem", to_json(what.problem)},
                   {"direction", what.pass.name},
                   {"precision", what.precision},
                   {"algorithm", contender.name},
                   {"us_burst", contender.us},
                   {"us_sustained", nullptr}};
    if (contender.weights) record["weights"] = *contender.weights == bench::PackedWeights::kept ? "kept" : "packed";
    if (with_packing > 0) record["us_burst_packed"] = with_packing;
    record["clock_mhz"] = bench::sm_clock_mhz();
    record["error"] = contender.verdict.error;
    record["roofline_us"] = roofline;
    if (is_chosen) record["chosen"] = true;
    if (is_chosen && choice.lost) record["lost"] = *choice.lost;
    record["peers"] = peers;
    // The arrays have every alignment that a choice among kernels depends on.
    if (what.pass.directions.size() == 1 && (is_chosen || contender.algorithm == Algorithm::tensor_core))
      record["form"] =
          bench::chosen_kernel(what.problem, what.pass.directions.front(), *contender.algorithm, what.mode.precision);
    if (contender.again > 0) record["computed_again"] = contender.again;
    if (is_chosen && options_.forms) {
      for (const Contender& other : contenders)
        if (other.is_form) record["forms"][other.name] = other.us;
    }
    records_.push_back(record);
  }

  void save() const {
    if (options_.json.empty()) return;
    Json root = {{"suite", suite()}, {"device", gpu_.name}, {"copy_bytes_per_s", bandwidth_}};
    root["blas_operations_per_s"] = rates_;
    root["cudnn"] = cudnn();
    if (choices_.cases() > 0)
      root["choice"] = {{"cases", choices_.cases()}, {"mean", choices_.mean()}, {"worst", choices_.worst()}};
    root["seconds"] = progress_.seconds();
    root["left_out"] = left_out_;
    root["records"] = records_;
    const std::string unfinished = options_.json + ".new";
    std::ofstream file(unfinished);
    file << root.dump(1) << '\n';
    file.close();
    require<Error>(file.good(), "cannot write '", unfinished, "'");
    std::filesystem::rename(unfinished, options_.json);
  }

#ifdef POLYPHASE_BENCH_CUDNN
  std::map<std::pair<ConvDirection, bench::Layout>, std::shared_ptr<bench::CudnnPeer>> peers_;  // of the case's operands
  std::map<std::string, std::optional<bench::CudnnAlgorithm>> searched_;
#endif
  const Options& options_;
  const cuda::DeviceProperties& gpu_;
  cudaStream_t stream_;
  Clock::time_point end_;
  bench::Progress progress_;
  double bandwidth_;
  std::map<std::string, double> rates_;
  Json records_ = Json::array();
  std::vector<std::string> left_out_;
  bench::ChoiceLog choices_;
  bool ok_ = true;
};

/// The most important cases come first, so that a budget leaves out the least important ones.
int run_all(const Options& options) {
  require<DeviceError>(cuda::device_count() > 0, cuda::unavailable_reason());
  Bench bench(options);
  const std::vector<bench::Shape> shapes = bench::chosen_shapes(options.shapes);
  const auto each = [&](const auto& run) {
    for (const bench::Shape& shape : shapes)
      for (const std::string& precision : options.precisions) run(shape, precision);
  };
  each([&](const auto& shape, const auto& precision) { bench.run(shape, precision, true); });
  each([&](const auto& shape, const auto& precision) { bench.run(shape, precision, false); });
  if (options.sustained) each([&](const auto& shape, const auto& precision) { bench.sustain(shape, precision); });
  bench.finish();
  return bench.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const auto describe = [&](program::Arguments& app, program::Action& action) {
    bench::add_options(app, options);
    app.callback([&] { program::as_usage([&] { bench::check(options); }); });  // fails before anything is timed
    action = [&] { return run_all(options); };
  };
  return program::run_main(argc, argv, "conv_transpose1d", "Times ConvTranspose1d on a GPU in comparison with cuDNN.",
                           describe);
}
