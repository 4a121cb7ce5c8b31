// The time from a process's start to its first result: a small vocoder-like network, one forward pass, and one line printed
// when the result is on the host. bench/cold_start.py times it from outside.
//   cold_start [DEVICE]        cuda:0 without
// Prints `first result: SUM after SECONDS s in main`, then compares with the CPU and exits with 1 if they differ.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <polyphase/polyphase.hpp>
#include <string>

#include "program/program.hpp"

namespace pp = polyphase;

namespace {

int first_result(const std::string& device_name, std::chrono::steady_clock::time_point start) {
  const pp::Device device = pp::Device::parse(device_name);
  const pp::NoGradGuard no_grad;
  pp::manual_seed(1);
  pp::Sequential net(pp::Conv1d({.in_channels = 1, .out_channels = 64, .kernel_size = 7, .padding = 3}), pp::LeakyReLU(0.1),
                     pp::ConvTranspose1d({.in_channels = 64, .out_channels = 32, .kernel_size = 8, .stride = 4, .padding = 2}),
                     pp::LeakyReLU(0.1), pp::Conv1d({.in_channels = 32, .out_channels = 1, .kernel_size = 7, .padding = 3}),
                     pp::Tanh());
  const pp::Tensor x = pp::Tensor::randn({4, 1, 64});
  net.to(device);
  const double sum = pp::mean(net(x.to(device))).item();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::printf("first result: %.6f after %.3f s in main\n", sum, elapsed.count());
  std::fflush(stdout);
  net.to(pp::Device::cpu());
  const double expected = pp::mean(net(x)).item();
  if (std::abs(sum - expected) <= 1e-5) return 0;
  std::fprintf(stderr, "cold_start: expected %.6f as on the CPU, got %.6f\n", expected, sum);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto start = std::chrono::steady_clock::now();
  std::string device = "cuda:0";
  const auto describe = [&](pp::program::Arguments& app, pp::program::Action& action) {
    app.add_option("device", device, "cpu, cuda or cuda:1").shows_default();
    action = [&] { return first_result(device, start); };
  };
  return pp::program::run_main(argc, argv, "cold_start", "Times a process from its start to its first result.", describe);
}
