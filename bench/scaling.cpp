// Times a training step of HiFi-GAN V1 as published (generator and discriminators, src/networks/gan) on several GPUs of this
// machine, one process for each, 16 segments of 8192 samples a GPU.
//   scaling --config FILE [--gpus N] [--precision fp32|tf32|bf16] [--batch N] [--segment L] [--bucket MIB] [--seconds S]
//   [--graph] [--json FILE]
// Without a launcher it starts itself once for each GPU. us_burst is a step of the first 12 after a rest, us_sustained one of
// those of S seconds. With --graph both are of the step as a CUDA graph, collectives included; us_burst_eager is always of the
// step as a program's calls, which is timed and written first. The parameters must be the same on all ranks afterwards, and all
// numbers finite; else it exits with 1. On a machine without GPUs it runs on the CPU: to see that it works.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <polyphase/polyphase.hpp>
#include <string>
#include <thread>
#include <vector>

#include "networks/gan/training.hpp"
#include "program/options.hpp"
#include "program/program.hpp"

namespace {

namespace pp = polyphase;
namespace dist = polyphase::distributed;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string config, precision = "fp32", json;
  int gpus = 1;
  std::int64_t batch = 16, segment = 8192;
  double seconds = 10;
  std::int64_t bucket = 0;  // MiB
  bool graph = false;
};

/// The training of one rank.
class Ranked {
 public:
  Ranked(dist::Group group, const Settings& settings)
      : group_(group),
        precision_(settings.precision),
        recipe_(pp::GanRecipe::parse(read(settings.config))),
        generator_(pp::make_network(recipe_.network, recipe_.config)) {
    pp::weight_norm(*generator_);
    generator_->to(group.device());
    training_.emplace(*generator_, recipe_);
    dist::DataParallelOptions options{.check_every = 0,
                                      .settings = pp::concat("batch ", settings.batch, " of ", settings.segment)};
    if (settings.bucket > 0) options.first_bucket_bytes = options.bucket_bytes = settings.bucket << 20;
    parallel_.push_back(std::make_unique<dist::DataParallel>(group, *generator_, options));
    for (auto& [name, discriminator] : training_->discriminators())
      parallel_.push_back(std::make_unique<dist::DataParallel>(group, *discriminator, options));
    pp::Generator noise(static_cast<std::uint64_t>(group.rank()) + 1);
    audio_ = pp::Tensor::uniform({settings.batch, 1, settings.segment}, -0.5, 0.5, {}, &noise).to(group.device());
  }

  void step() { graph_ ? graph_->replay() : compute(); }
  /// From here on a step is the replay of one that is recorded now.
  void capture() {
    graph_.emplace(pp::cuda::capture([this] { compute(); }, group_.device().index));
  }

  /// Whether the last step's numbers are finite; waits.
  [[nodiscard]] bool is_finite() const { return last_->read().is_finite(); }
  void check() {
    for (const auto& parallel : parallel_) parallel->check_parameters();
  }

 private:
  static std::string read(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    pp::require<pp::Error>(stream.is_open(), file, ": expected a configuration of HiFi-GAN");
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  // The guards are made in the step: inside a recording they keep weights that were cast there.
  void compute() {
    const pp::PrecisionGuard precision(precision_ == "tf32" ? pp::Precision::tf32 : pp::Precision::fp32);
    std::optional<pp::AutocastGuard> autocast;
    if (precision_ == "bf16") autocast.emplace(pp::DType::bf16);
    last_ = training_->step(audio_);
  }

  dist::Group group_;
  std::string precision_;
  pp::GanRecipe recipe_;
  std::unique_ptr<pp::Network> generator_;
  std::optional<pp::GanTraining> training_;
  std::vector<std::unique_ptr<dist::DataParallel>> parallel_;
  pp::Tensor audio_;
  std::optional<pp::GanStep> last_;
  std::optional<pp::cuda::Graph> graph_;  // before the group is left
};

void wait(pp::Device device) {
  if (device.is_cuda()) pp::cuda::synchronize(device.index);
}

/// Microseconds a step, on all ranks together.
double time_steps(dist::Group& group, Ranked& training, int steps) {
  wait(group.device());
  group.barrier();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < steps; ++i) training.step();
  wait(group.device());
  group.barrier();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / steps;
}

/// The number of steps of `seconds`, which rank 0 says.
int steps_of(dist::Group& group, double seconds, double us) {
  const pp::Tensor steps =
      pp::Tensor::full({1}, std::max(2.0, seconds * 1e6 / us), {.dtype = pp::DType::f64, .device = pp::Device::cpu()});
  if (group.world() > 1) group.host_communicator().broadcast(steps, 0, "number of steps").wait();
  return steps.item<int>();
}

/// What rank 0 says and writes: times in microseconds.
void report(const dist::Group& group, const Settings& settings, const char* mode, double eager, double burst,
            double sustained) {
  if (!group.is_first()) return;
  std::printf("%d x %s, %s, %s: %.2f ms a step, sustained %.2f ms\n", group.world(), group.device().is_cuda() ? "GPU" : "CPU",
              settings.precision.c_str(), mode, burst / 1e3, sustained / 1e3);
  std::fflush(stdout);
  if (settings.json.empty()) return;
  const nlohmann::json record = {{"network", "hifigan_v1_gan"}, {"precision", settings.precision},
                                 {"gpus", group.world()},       {"mode", mode},
                                 {"us_burst", burst},           {"us_burst_eager", eager},
                                 {"us_sustained", sustained},   {"peers", nlohmann::json::object()}};
  std::ofstream(settings.json)
      << nlohmann::json{{"suite", "scaling"}, {"device", to_string(group.device())}, {"records", {record}}}.dump(1) << '\n';
}

int run_rank(const Settings& settings) {
  dist::Group group = dist::init();
  const pp::DeviceGuard guard(group.device());
  const bool on_gpu = group.device().is_cuda();
  if (settings.graph && !on_gpu) throw pp::Error("--graph: expected GPUs, there is none");
  Ranked training(group, settings);
  (void)time_steps(group, training, on_gpu ? 5 : 1);  // plans, optimizer state, memory
  std::this_thread::sleep_for(std::chrono::seconds(on_gpu ? 2 : 0));
  const double eager = time_steps(group, training, on_gpu ? 12 : 1);
  double sustained = time_steps(group, training, steps_of(group, settings.seconds, eager));
  report(group, settings, "eager", eager, eager, sustained);
  if (settings.graph) {
    training.capture();
    (void)time_steps(group, training, 2);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    const double burst = time_steps(group, training, 12);
    sustained = time_steps(group, training, steps_of(group, settings.seconds, burst));
    report(group, settings, "graph", eager, burst, sustained);
  }
  training.check();
  if (!training.is_finite()) throw pp::Error("scaling: a loss is infinite or NaN");
  return 0;
}

/// Starts this program once for each rank; nothing has touched a GPU yet.
int run_all(const Settings& settings) {
  if (settings.gpus == 1 || dist::find_place().world > 1) return run_rank(settings);
  std::string folder = (std::filesystem::temp_directory_path() / "polyphase-scaling-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw pp::Error("scaling: no temporary folder can be made");
  ::setenv("POLYPHASE_WORLD", std::to_string(settings.gpus).c_str(), 1);
  ::setenv("POLYPHASE_ADDRESS", (folder + "/meeting").c_str(), 1);
  std::vector<pid_t> others;
  int rank = 0;
  for (int other = 1; other < settings.gpus && rank == 0; ++other) {
    const pid_t id = ::fork();
    if (id == 0) rank = other;
    if (id != 0) others.push_back(id);
  }
  ::setenv("POLYPHASE_RANK", std::to_string(rank).c_str(), 1);
  if (rank > 0) {
    const int code = run_rank(settings);
    std::fflush(nullptr);
    std::_Exit(code);
  }
  int code = run_rank(settings);
  for (const pid_t other : others) {
    int status = 0;
    ::waitpid(other, &status, 0);
    if (status != 0) code = 1;
  }
  std::filesystem::remove_all(folder);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  return pp::program::run_main(
      argc, argv, "scaling", "Times data-parallel training.", [](pp::program::Arguments& app, pp::program::Action& action) {
        static Settings settings;
        app.add_option("--config", settings.config, "HiFi-GAN's configuration").required();
        app.add_option("--gpus", settings.gpus, "processes to start without a launcher (default 1)").in_range(1, 64);
        app.add_option("--precision", settings.precision, "fp32 (default), tf32 or bf16").one_of({"fp32", "tf32", "bf16"});
        app.add_option("--batch", settings.batch, "segments of each GPU (default 16)").in_range(1, 1024);
        app.add_option("--segment", settings.segment, "samples of each, a multiple of 256 (default 8192)")
            .in_range(256, 1 << 20);
        app.add_option("--bucket", settings.bucket, "MiB of each bucket (default: as the library's)").in_range(1, 1024);
        app.add_option("--seconds", settings.seconds, "of the sustained run (default 10)").above_zero();
        app.add_flag("--graph", settings.graph, "on GPUs, also the step as a CUDA graph");
        app.add_option("--json", settings.json, "writes the record there");
        action = [] { return run_all(settings); };
      });
}
