// Times passes over memory of one layer, such as an activation, and a copy of as many bytes. Needs a GPU.
//   elementwise [--device cuda:0] [--match REGEX] [--dtypes f32,f16,bf16] [--json FILE]
// Tensors are 16 x 128 x 27552, larger than every cache. `copy` is a device copy that reads and writes as many bytes as the
// operation's operands and results have. The operation and its copy take turns; a time is the median of five bursts of 12.

#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "device/backend.hpp"
#include "gpu_timing.hpp"
#include "io/atomic_file.hpp"
#include "polyphase/polyphase.hpp"
#include "program/options.hpp"
#include "program/program.hpp"

namespace {

namespace pp = polyphase;
namespace bench = polyphase::bench;

constexpr std::int64_t kN = 16, kC = 128, kL = 27552;

struct Asked {
  pp::Device device = pp::Device::cuda(0);
  std::vector<std::string> dtypes{"f32", "f16", "bf16"};
  std::string match, json;
};

/// The operands of every operation.
struct Operands {
  explicit Operands(const pp::TensorOptions& options)
      : x(pp::Tensor::randn({kN, kC, kL}, options)),
        y(pp::Tensor::randn({kN, kC, kL}, options)),
        z(pp::Tensor::randn({kN, kC, kL}, options)),
        channels(pp::Tensor::uniform({kC, 1}, 0.5, 2, options)),
        last(pp::Tensor::randn({kL}, options)),
        alpha(pp::Tensor::uniform({kC}, 0.5, 2, options)),
        beta(pp::Tensor::uniform({kC}, 0.5, 2, options)),
        filter(pp::kaiser_sinc_filter(0.25, 0.3, 12, options)) {}
  pp::Tensor x, y, z, channels, last, alpha, beta, filter;
};

struct Operation {
  const char* name;
  int passes;  ///< tensors of x's size that are read or written
  std::function<pp::Tensor(const Operands&)> run;
};

pp::Tensor gradient_of(pp::MapOp op, const Operands& in, pp::MapScalars scalars = {}) {
  pp::Tensor out = pp::Tensor::empty_like(in.x);
  pp::backend_of(out.device()).map(op, out, std::array{in.x, in.y}, scalars);
  return out;
}

pp::Tensor snake_backward(const Operands& in) {
  const pp::SnakeGradients out{pp::Tensor::empty_like(in.x), pp::Tensor::empty_like(in.alpha), pp::Tensor::empty_like(in.beta)};
  pp::backend_of(in.x.device()).snake_backward(in.x, in.alpha, in.beta, in.y, out);
  return out.x;
}

pp::Tensor antialiased_backward(const Operands& in) {
  const pp::AntialiasedSnakeGradients out{pp::Tensor::empty_like(in.x), pp::Tensor::empty_like(in.alpha),
                                          pp::Tensor::empty_like(in.beta)};
  pp::backend_of(in.x.device()).antialiased_snake_backward(out, {in.x, in.alpha, in.beta, in.filter, in.filter}, in.y);
  return out.x;
}

const std::vector<Operation>& operations() {
  using In = const Operands&;
  static const std::vector<Operation> all{
      {"add", 3, [](In in) { return in.x + in.y; }},
      {"mul_channel", 2, [](In in) { return in.x * in.channels; }},
      {"add_last_dim", 2, [](In in) { return in.x + in.last; }},
      {"div_number", 2, [](In in) { return in.x / 3.0; }},
      {"average_of_3", 4,
       [](In in) {
         return pp::average_of(std::array{in.x, in.y, in.z}, 3);
       }},
      {"relu", 2, [](In in) { return pp::relu(in.x); }},
      {"leaky_relu", 2, [](In in) { return pp::leaky_relu(in.x, 0.1); }},
      {"elu", 2, [](In in) { return pp::elu(in.x); }},
      {"gelu", 2, [](In in) { return pp::gelu(in.x); }},
      {"gelu_tanh", 2, [](In in) { return pp::gelu(in.x, true); }},
      {"silu", 2, [](In in) { return pp::silu(in.x); }},
      {"tanh", 2, [](In in) { return pp::tanh(in.x); }},
      {"sigmoid", 2, [](In in) { return pp::sigmoid(in.x); }},
      {"snake", 2, [](In in) { return pp::snake(in.x, in.alpha); }},
      {"snake_beta", 2, [](In in) { return pp::snake_beta(in.x, in.alpha, in.beta); }},
      {"pad1d_zeros", 2,
       [](In in) {
         return pp::pad1d(in.x, {3, 3});
       }},
      {"pad1d_reflect", 2,
       [](In in) {
         return pp::pad1d(in.x, {3, 3}, pp::PaddingMode::reflect);
       }},
      {"pad1d_replicate", 2,
       [](In in) {
         return pp::pad1d(in.x, {3, 3}, pp::PaddingMode::replicate);
       }},
      {"aa_snakebeta", 2, [](In in) { return pp::antialias_snake(in.x, in.alpha, in.beta, in.filter, in.filter); }},
      {"leaky_relu_backward", 3,
       [](In in) {
         return gradient_of(pp::MapOp::leaky_relu_grad, in, {0.1, 0});
       }},
      {"elu_backward", 3,
       [](In in) {
         return gradient_of(pp::MapOp::elu_grad, in, {1, 0});
       }},
      {"tanh_backward", 3, [](In in) { return gradient_of(pp::MapOp::tanh_grad, in); }},
      {"snake_beta_backward", 3, snake_backward},
      {"aa_snakebeta_backward", 3, antialiased_backward},
  };
  return all;
}

class Table {
 public:
  explicit Table(const Asked& asked) : asked_(asked) {}

  int time_all() {
    const pp::NoGradGuard no_grad;
    const pp::DeviceGuard device(asked_.device);
    const std::regex match(asked_.match);
    std::printf("%-24s %-5s %10s %10s %8s\n", "16 x 128 x 27552", "", "us", "copy us", "copies");
    for (const std::string& name : asked_.dtypes) {
      const pp::DType dtype = pp::program::parse_dtype(name);
      const Operands in({.dtype = dtype, .device = asked_.device});
      for (const Operation& operation : operations())
        if (asked_.match.empty() || std::regex_search(operation.name, match)) time(operation, in, name);
    }
    pp::require<pp::Error>(!records_.empty(), "no operation is selected: see --match");
    if (!asked_.json.empty()) save();
    return 0;
  }

 private:
  void time(const Operation& operation, const Operands& in, const std::string& dtype) {
    cudaStream_t const stream = pp::cuda::current_stream(asked_.device.index);
    const pp::Tensor to = pp::Tensor::empty_like(in.x);
    const std::size_t bytes = static_cast<std::size_t>(in.x.numel()) * pp::size_of(in.x.dtype());
    const auto copy = [&](int) { (void)cudaMemcpyAsync(to.raw(), in.x.raw(), bytes, cudaMemcpyDeviceToDevice, stream); };
    const auto run = [&](int) { (void)operation.run(in); };
    const std::vector<double> us = bench::time_alternating({run, copy}, stream, {.times = 100});
    const double copy_us = us[1] * operation.passes / 2;
    std::printf("%-24s %-5s %10.1f %10.1f %8.2f\n", operation.name, dtype.c_str(), us[0], copy_us, us[0] / copy_us);
    std::fflush(stdout);
    records_.push_back({{"op", operation.name}, {"dtype", dtype}, {"us_burst", us[0]}, {"copy_us", copy_us}});
  }

  void save() const {
    const nlohmann::json all{{"suite", "elementwise"}, {"shape", {kN, kC, kL}}, {"records", records_}};
    pp::AtomicFile file("bench/elementwise", asked_.json);
    const std::string text = all.dump(1) + "\n";
    file.write(text.data(), text.size());
    file.commit();
  }

  const Asked& asked_;
  nlohmann::json records_ = nlohmann::json::array();
};

}  // namespace

int main(int argc, char** argv) {
  Asked asked;
  const auto describe = [&](pp::program::Arguments& app, pp::program::Action& action) {
    pp::program::add_device(app, asked.device);
    app.add_option("--match", asked.match, "only operations whose name matches this regular expression");
    app.add_option("--dtypes", asked.dtypes, "of f32, f16, bf16 and f64; default: f32,f16,bf16").separated_by(',');
    app.add_option("--json", asked.json, "file for the records");
    action = [&] {
      pp::program::as_usage([&] {
        pp::require<pp::Error>(asked.device.is_cuda(), "--device: expected a GPU, got ", pp::to_string(asked.device));
        return 0;
      });
      return Table(asked).time_all();
    };
  };
  return pp::program::run_main(argc, argv, "elementwise", "Times passes over memory and copies of as many bytes.", describe);
}
