// Times a training step of a small vocoder-like network (1->64 k7, up 64->64 k8 s4, up 64->32 k8 s4, 32->1 k7; MSE, Adam):
// forward, backward and update, batches of 32 x 512 and 4 x 64 low-rate samples.
//   training_step [--device cpu] [--threads T] [--repeat R] [--json FILE]
// The loss must fall over the timed steps, else it exits with 1. bench/peers_torch_step.py times PyTorch on the same steps.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <polyphase/polyphase.hpp>
#include <string>
#include <vector>

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

struct Result {
  double us = 0;
  double first_loss = 0, last_loss = 0;
  [[nodiscard]] bool ok() const { return last_loss < first_loss; }
};

Result time_steps(const Batch& batch, pp::Device device, int repeat) {
  pp::manual_seed(1);
  pp::Sequential net = make_network();
  net.to(device);
  pp::Adam optimizer(net.parameters(), {.learning_rate = 1e-3});
  const pp::Tensor x = pp::Tensor::randn({batch.N, 1, batch.L}).to(device);
  const pp::Tensor target = pp::Tensor::uniform({batch.N, 1, batch.L * 16}, -0.5, 0.5).to(device);
  auto step = [&] {
    const pp::Tensor loss = pp::mse_loss(net(x), target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return loss;
  };
  Result result;
  result.first_loss = step().item();
  std::vector<double> times;
  for (int i = -2; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const pp::Tensor loss = step();
    result.last_loss = loss.item();
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    if (i >= 0) times.push_back(elapsed.count());
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  result.us = times[static_cast<std::size_t>(repeat / 2)];
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  std::string device_name = "cpu", json_path;
  int threads = pp::num_threads(), repeat = 15;
  CLI::App app("times a training step of a small network");
  app.add_option("--device", device_name, "cpu or cuda:0");
  app.add_option("--threads", threads, "threads on the CPU")->check(CLI::PositiveNumber);
  app.add_option("--repeat", repeat, "timed steps")->check(CLI::PositiveNumber);
  app.add_option("--json", json_path, "file for the records");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    pp::set_num_threads(threads);
    const pp::Device device = pp::Device::parse(device_name);
    nlohmann::json records = nlohmann::json::array();
    bool ok = true;
    std::printf("training step on %s, %d threads\n%-12s %10s %12s %12s\n", pp::to_string(device).c_str(), threads, "batch",
                "ms", "first loss", "last loss");
    for (const Batch& batch : kBatches) {
      const Result result = time_steps(batch, device, repeat);
      ok = ok && result.ok();
      std::printf("%-12s %10.3f %12.6f %12.6f%s\n", batch.name, result.us / 1e3, result.first_loss, result.last_loss,
                  result.ok() ? "" : "  THE LOSS DID NOT FALL");
      records.push_back({{"suite", "training_step"},
                         {"shape", batch.name},
                         {"direction", "step"},
                         {"precision", "fp32"},
                         {"algorithm", "automatic"},
                         {"us_burst", result.us}});
    }
    if (!json_path.empty()) {
      std::ofstream file(json_path);
      file << nlohmann::json(
                  {{"suite", "training_step"}, {"device", pp::to_string(device)}, {"threads", threads}, {"records", records}})
                  .dump(1)
           << '\n';
      file.close();
      if (!file) throw pp::Error("cannot write '" + json_path + "'");
    }
    return ok ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "training_step: %s\n", error.what());
    return 1;
  }
}
