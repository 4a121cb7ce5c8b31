// Runs one ConvTranspose1d twice, each time with a chosen device, algorithm and precision. Prints the difference of both from
// float64 and from each other, and the times.
//   compare_backends --a cpu,gemm --b cpu,reference --shape 4,64,32,8,256,4,2
//   compare_backends --a cuda,direct,ieee --b cuda,tensor_core,tf32

#include <polyphase/polyphase.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "program/options.hpp"
#include "program/program.hpp"

namespace pp = polyphase;

namespace {

constexpr std::array kDirections = {"forward", "dgrad", "wgrad"};
constexpr int kRuns = 9;  // timed runs; the median is printed

// Device, algorithm and precision, separated by commas; missing ones have their defaults.
struct Backend {
  std::string text;
  pp::Device device;
  pp::Algorithm algorithm = pp::Algorithm::automatic;
  pp::Precision precision = pp::Precision::fp32;
};

// N, C_in, C_out, K, L_in, S, P, D, OP, G, as in docs/notation.md.
struct Layer {
  std::array<std::int64_t, 10> sizes = {4, 64, 32, 8, 512, 4, 2, 1, 0, 1};
  [[nodiscard]] pp::Shape x() const { return {sizes[0], sizes[1], sizes[4]}; }
  [[nodiscard]] pp::Shape weight() const { return {sizes[1], sizes[2] / sizes[9], sizes[3]}; }
  [[nodiscard]] pp::ConvTranspose1dOptions options() const {
    return {.stride = sizes[5], .padding = sizes[6], .output_padding = sizes[8], .dilation = sizes[7], .groups = sizes[9]};
  }
};

struct Inputs {
  pp::Tensor x, weight, bias, grad_y;
};

struct Outcome {
  std::array<pp::Tensor, 3> results;  // y, grad_x, grad_weight; f64 on the cpu
  std::array<double, 3> microseconds{};
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string part; std::getline(words, part, ',');) parts.push_back(part);
  return parts;
}

Backend parse_backend(const std::string& text) {
  const std::vector<std::string> parts = split(text);
  if (parts.empty() || parts.size() > 3) throw pp::Error("expected DEVICE[,ALGORITHM[,PRECISION]], got " + text);
  Backend backend{text, {}};
  backend.device = pp::Device::parse(parts[0]);
  if (parts.size() > 1) backend.algorithm = pp::parse_algorithm(parts[1]);
  if (parts.size() > 2) backend.precision = pp::parse_precision(parts[2]);
  return backend;
}

Layer parse_layer(const std::vector<std::int64_t>& sizes) {
  Layer layer;
  if (sizes.size() > layer.sizes.size())
    throw pp::program::UsageError("--shape: expected at most 10 numbers, got " + std::to_string(sizes.size()));
  std::copy(sizes.begin(), sizes.end(), layer.sizes.begin());
  if (layer.sizes[9] < 1) throw pp::program::UsageError("--shape: expected G >= 1");
  if (std::any_of(layer.sizes.begin(), layer.sizes.end(), [](std::int64_t size) { return size < 0; })) {
    throw pp::program::UsageError("--shape: expected no negative number");
  }
  return layer;
}

template <class Function>
double median_microseconds(pp::Device device, const Function& function) {
  std::vector<double> times;
  for (int run = 0; run <= kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const pp::Tensor result = function();
    if (device.is_cuda()) static_cast<void>(result.flatten().slice(0, 0, 1).cpu());  // synchronises the device
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    if (run > 0) times.push_back(time.count());  // the first warms up
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

Outcome run(const Layer& layer, const Inputs& inputs, const Backend& backend, pp::DType dtype, bool is_timed) {
  const pp::AlgorithmGuard algorithm(backend.algorithm);
  const pp::PrecisionGuard precision(backend.precision);
  const auto place = [&](const pp::Tensor& t) { return t.to(dtype).to(backend.device).clone(); };
  pp::Tensor x = place(inputs.x), w = place(inputs.weight);
  const pp::Tensor b = place(inputs.bias), g = place(inputs.grad_y);
  const auto forward = [&] { return pp::conv_transpose1d(x, w, b, layer.options()); };
  // The gradient of one input alone, through a graph that is kept.
  const auto gradient_of = [&](pp::Tensor& input, double& microseconds) {
    input.set_requires_grad(true);
    const pp::Tensor y = forward();
    const auto backward = [&] {
      input.set_grad({});
      y.backward(g, true);
      return input.grad();
    };
    const pp::Tensor gradient = backward();
    if (is_timed) microseconds = median_microseconds(backend.device, backward);
    input.set_requires_grad(false);
    return gradient;
  };
  Outcome outcome;
  if (is_timed) outcome.microseconds[0] = median_microseconds(backend.device, forward);
  outcome.results = {forward(), gradient_of(x, outcome.microseconds[1]), gradient_of(w, outcome.microseconds[2])};
  for (pp::Tensor& result : outcome.results) result = result.cpu().to(pp::DType::f64);
  return outcome;
}

// The largest difference over the root mean square of the reference.
double error_of(const pp::Tensor& result, const pp::Tensor& expected) {
  const double size = std::sqrt(pp::mean(pp::square(expected)).item<double>());
  const double difference = pp::max(pp::abs(result - expected)).item<double>();
  return difference == 0 ? 0 : difference / size;
}

void compare(const Layer& layer, const Backend& a, const Backend& b, pp::DType dtype) {
  pp::manual_seed(1);
  Inputs inputs{pp::Tensor::randn(layer.x()).to(dtype),
                pp::Tensor::randn(layer.weight()).to(dtype),
                pp::Tensor::randn({layer.sizes[2]}).to(dtype),
                {}};
  const pp::NoGradGuard no_grad;
  const pp::Tensor y = pp::conv_transpose1d(inputs.x, inputs.weight, inputs.bias, layer.options());
  inputs.grad_y = pp::Tensor::randn(y.shape()).to(dtype);
  const pp::GradModeGuard grad(true);
  const Backend reference{"cpu,reference", pp::Device::cpu(), pp::Algorithm::reference};
  const Outcome exact = run(layer, inputs, reference, pp::DType::f64, false);
  const Outcome first = run(layer, inputs, a, dtype, true);
  const Outcome second = run(layer, inputs, b, dtype, true);

  std::printf("x %s, weight %s -> y %s, %s, %d threads\n", pp::to_string(layer.x()).c_str(),
              pp::to_string(layer.weight()).c_str(), pp::to_string(y.shape()).c_str(), std::string(pp::name_of(dtype)).c_str(),
              pp::num_threads());
  std::printf("a: %s\nb: %s\n", a.text.c_str(), b.text.c_str());
  std::printf("errors: largest difference over the root mean square\n\n");
  std::printf("%-9s %12s %12s %12s %12s %12s %8s\n", "direction", "a - float64", "b - float64", "a - b", "a us", "b us", "b/a");
  for (std::size_t i = 0; i < kDirections.size(); ++i) {
    const pp::Tensor& truth = exact.results[i];
    std::printf("%-9s %12.2e %12.2e %12.2e %12.1f %12.1f %8.2f\n", kDirections[i], error_of(first.results[i], truth),
                error_of(second.results[i], truth), error_of(first.results[i], second.results[i]), first.microseconds[i],
                second.microseconds[i], second.microseconds[i] / first.microseconds[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Backend a = parse_backend("cpu,automatic"), b = parse_backend("cpu,reference");
  pp::DType dtype = pp::DType::f32;
  std::vector<std::int64_t> sizes;
  const auto describe = [&](pp::program::Arguments& app, pp::program::Action& action) {
    using pp::program::add_parsed;
    add_parsed(app, "--a", a, "DEVICE[,ALGORITHM[,PRECISION]] (default cpu,automatic)", parse_backend);
    add_parsed(app, "--b", b, "the other (default cpu,reference)", parse_backend);
    app.add_option("--shape", sizes,
                   "N,C_in,C_out,K,L_in,S,P,D,OP,G; the last ones may be left out (default 4,64,32,8,512,4,2,1,0,1)")
        .separated_by(',');
    add_parsed(app, "--dtype", dtype, "f32 (default), f64, f16 or bf16", pp::program::parse_dtype);
    pp::program::add_threads(app);
    app.callback([&] { action = [&, layer = parse_layer(sizes)] { return compare(layer, a, b, dtype), 0; }; });
  };
  return pp::program::run_main(argc, argv, "compare_backends", "Compares two ways to compute one ConvTranspose1d", describe);
}
