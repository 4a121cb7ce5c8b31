// Times a training step of a small vocoder-like network (1->64 k7, up 64->64 k8 s4, up 64->32 k8 s4, 32->1 k7; MSE, Adam):
// forward, backward and update, batches of 32 x 512 and 4 x 64 low-rate samples.
//   training_step [--device cpu] [--graph] [--threads T] [--repeat R] [--json FILE]
// On the CPU each step is waited for, on a GPU each group of 20, since a program does not read every step's loss. --graph also
// times the step captured as one CUDA graph. The exit status is 1 if the loss does not fall over the timed steps, or if the
// graph's last loss differs from the eager one in a bit. bench/peers_torch_step.py times PyTorch on the same steps.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <polyphase/polyphase.hpp>
#include <string>
#include <vector>

#include "program/options.hpp"
#include "program/program.hpp"

namespace {

namespace pp = polyphase;

struct Batch {
  const char* name;
  std::int64_t N, L;
};
constexpr Batch kBatches[] = {{"toy_32x512", 32, 512}, {"toy_4x64", 4, 64}};

pp::Sequential make_network() {
  return pp::Sequential(
      pp::Conv1d({.in_channels = 1, .out_channels = 64, .kernel_size = 7, .padding = 3}), pp::LeakyReLU(0.1),
      pp::ConvTranspose1d({.in_channels = 64, .out_channels = 64, .kernel_size = 8, .stride = 4, .padding = 2}),
      pp::LeakyReLU(0.1),
      pp::ConvTranspose1d({.in_channels = 64, .out_channels = 32, .kernel_size = 8, .stride = 4, .padding = 2}),
      pp::LeakyReLU(0.1), pp::Conv1d({.in_channels = 32, .out_channels = 1, .kernel_size = 7, .padding = 3}), pp::Tanh());
}

/// The network, its data and the step.
class Training {
 public:
  Training(const Batch& batch, pp::Device device) : net_(make_network()) {
    net_.to(device);
    optimizer_.emplace(net_.parameters(), pp::AdamOptions{.learning_rate = 1e-3});
    x_ = pp::Tensor::randn({batch.N, 1, batch.L}).to(device);
    target_ = pp::Tensor::uniform({batch.N, 1, batch.L * 16}, -0.5, 0.5).to(device);
  }
  void step() {
    loss_ = pp::mse_loss(net_(x_), target_);
    optimizer_->zero_grad();
    loss_.backward();
    optimizer_->step();
  }
  /// Waits for the last step.
  [[nodiscard]] double loss() const { return loss_.item(); }

 private:
  pp::Sequential net_;
  std::optional<pp::Adam> optimizer_;
  pp::Tensor x_, target_, loss_;
};

struct Result {
  const char* way;
  double us = 0;
  double first_loss = 0, last_loss = 0;
  bool ok = false;
};

/// The median over `repeat` groups of `group` steps, each waited for, after two groups that are not timed. Before the groups
/// there are 3 steps, in which the graph's memory and the optimizer's state are allocated.
Result time_steps(const Batch& batch, pp::Device device, bool graph, int group, int repeat) {
  pp::manual_seed(1);
  Training training(batch, device);
  Result result{.way = device.is_cpu() ? "automatic" : graph ? "graph" : "eager"};
  training.step();
  result.first_loss = training.loss();
  for (int i = 0; i < 2; ++i) training.step();
  std::optional<pp::cuda::Graph> captured;
  if (graph) captured.emplace(pp::cuda::capture([&] { training.step(); }));
  std::vector<double> times;
  for (int i = -2; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int j = 0; j < group; ++j) captured ? captured->replay() : training.step();
    result.last_loss = training.loss();
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    if (i >= 0) times.push_back(elapsed.count() / group);
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  result.us = times[static_cast<std::size_t>(repeat / 2)];
  result.ok = result.last_loss < result.first_loss;
  return result;
}

/// All results for one batch.
std::vector<Result> time_batch(const Batch& batch, pp::Device device, bool graph, int repeat) {
  const int group = device.is_cpu() ? 1 : 20;
  std::vector<Result> results = {time_steps(batch, device, false, group, repeat)};
  if (graph) {
    results.push_back(time_steps(batch, device, true, group, repeat));
    results[1].ok = results[1].ok && results[1].last_loss == results[0].last_loss;
  }
  return results;
}

struct Asked {
  std::string device = "cpu", json;
  int threads = pp::num_threads(), repeat = 15;
  bool graph = false;
};

void save(const Asked& asked, const pp::Device& device, const nlohmann::json& records) {
  std::ofstream file(asked.json);
  const nlohmann::json all{
      {"suite", "training_step"}, {"device", pp::to_string(device)}, {"threads", asked.threads}, {"records", records}};
  file << all.dump(1) << '\n';
  file.close();
  if (!file) throw pp::Error("cannot write '" + asked.json + "'");
}

int time_all(const Asked& asked) {
  pp::set_num_threads(asked.threads);
  const pp::Device device = pp::Device::parse(asked.device);
  nlohmann::json records = nlohmann::json::array();
  bool ok = true;
  if (asked.graph && device.is_cpu()) throw pp::Error("--graph: expected a GPU, got the device " + pp::to_string(device));
  std::printf("training step on %s, %d threads\n%-12s %-10s %10s %12s %12s\n", pp::to_string(device).c_str(), asked.threads,
              "batch", "way", "ms", "first loss", "last loss");
  for (const Batch& batch : kBatches) {
    for (const Result& result : time_batch(batch, device, asked.graph, asked.repeat)) {
      ok = ok && result.ok;
      std::printf("%-12s %-10s %10.3f %12.6f %12.6f%s\n", batch.name, result.way, result.us / 1e3, result.first_loss,
                  result.last_loss, result.ok ? "" : "  WRONG: it did not fall, or the graph's is not the eager one's");
      records.push_back({{"suite", "training_step"},
                         {"shape", batch.name},
                         {"direction", "step"},
                         {"precision", "fp32"},
                         {"algorithm", result.way},
                         {"us_burst", result.us}});
    }
  }
  if (!asked.json.empty()) save(asked, device, records);
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Asked asked;
  const auto describe = [&](pp::program::Arguments& app, pp::program::Action& action) {
    app.add_option("--device", asked.device, "cpu or cuda:0");
    app.add_flag("--graph", asked.graph, "on a GPU, also the step as a CUDA graph");
    app.add_option("--threads", asked.threads, "threads on the CPU").above_zero();
    app.add_option("--repeat", asked.repeat, "timed steps").above_zero();
    app.add_option("--json", asked.json, "file for the records");
    action = [&] { return time_all(asked); };
  };
  return pp::program::run_main(argc, argv, "training_step", "Times a training step of a small network.", describe);
}
