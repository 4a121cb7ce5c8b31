// The library in thirty lines: a network learns to upsample signals by four.
//   quickstart [MODEL.safetensors]
// The signals are random sums of sines, so it needs no data. The model is saved to the argument's path, else to the temporary
// directory.

#include <polyphase/polyphase.hpp>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "program/program.hpp"

namespace pp = polyphase;

namespace {

constexpr std::int64_t kFactor = 4;

// high (8, 1, 256): each row a sum of three sines; low (8, 1, 64): every fourth sample of it.
std::pair<pp::Tensor, pp::Tensor> make_batch(pp::Device device) {
  constexpr std::int64_t kRows = 8, kLength = 256, kSines = 3;
  const double two_pi = 2 * std::acos(-1.0);
  const pp::Tensor time = pp::Tensor::arange(kLength);
  pp::Tensor high = pp::Tensor::zeros({kRows, 1, kLength});
  for (int i = 0; i < kSines; ++i) {
    // Below an eighth of the sampling rate, so that the low rate can represent it.
    const pp::Tensor frequency = pp::Tensor::uniform({kRows, 1, 1}, 0.01, 0.12);
    const pp::Tensor phase = pp::Tensor::uniform({kRows, 1, 1}, 0, two_pi);
    high = high + pp::sin(frequency * time * two_pi + phase) / double{kSines};
  }
  return {high.slice(2, 0, kLength, kFactor).contiguous().to(device), high.to(device)};
}

// Signal-to-noise ratio in decibels.
double snr(const pp::Tensor& output, const pp::Tensor& target) {
  return 10 * std::log10(pp::mean(pp::square(target)).item<double>() / pp::mse_loss(output, target).item<double>());
}

void run(const std::string& path) {
  auto device = pp::Device::best();  // cuda:0 if there is one, else cpu
  pp::manual_seed(1);
  // clang-format off
  pp::Sequential net(
      pp::Conv1d({.in_channels = 1, .out_channels = 64, .kernel_size = 7, .padding = 3}),
      pp::LeakyReLU(0.1f),
      pp::ConvTranspose1d({.in_channels = 64, .out_channels = 32, .kernel_size = 8, .stride = 4, .padding = 2}),
      pp::LeakyReLU(0.1f),
      pp::Conv1d({.in_channels = 32, .out_channels = 1, .kernel_size = 7, .padding = 3}),
      pp::Tanh());
  // clang-format on
  net.to(device);
  std::printf("training %lld parameters on %s\n", static_cast<long long>(net.parameter_count()), pp::to_string(device).c_str());
  pp::Adam optimizer(net.parameters(), {.learning_rate = 1e-3});
  for (int step = 1; step <= 300; ++step) {
    const auto [low, high] = make_batch(device);
    auto loss = pp::mse_loss(net(low), high);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step == 1 || step % 100 == 0) std::printf("step %3d   loss %.5f\n", step, loss.item<double>());
  }

  pp::NoGradGuard no_grad;
  const auto [low, high] = make_batch(device);
  std::printf("new signals: network %.1f dB, linear interpolation %.1f dB\n", snr(net(low), high),
              snr(pp::upsample1d(low, kFactor, pp::UpsampleMode::linear), high));

  pp::save_safetensors(path, net.state_dict());  // keys with PyTorch's names: 0.weight, 2.bias, ...
  net.load_state_dict(pp::load_safetensors(path).tensors);
  std::printf("saved %s\n", path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::string path = (std::filesystem::temp_directory_path() / "quickstart.safetensors").string();
  const auto describe = [&](pp::program::Arguments& app, pp::program::Action& action) {
    app.add_option("model", path, "the file to save the model to").shows_default();
    action = [&] { return run(path), 0; };
  };
  return pp::program::run_main(argc, argv, "quickstart", "A network learns to upsample signals four times.", describe);
}
