// Times residual units, which one kernel may compute, and their steps. Needs a GPU.
//   residual_units [--device cuda:0] [--match REGEX] [--precisions tf32,f16] [--data normal,half_1e-10] [--json FILE]
// A unit and its steps take turns; a time is the median of five bursts of 12. The steps are two calls of conv1d() with
// prologue, epilogue and residual, as residual_unit() makes them where no kernel does it. Kinds of data: normal, or one of
// mixed_data.cpp, which changes x or the first weights.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "gpu_timing.hpp"
#include "io/atomic_file.hpp"
#include "mixed_data.hpp"
#include "polyphase/polyphase.hpp"
#include "program/options.hpp"
#include "program/program.hpp"

namespace {

namespace pp = polyphase;
namespace bench = polyphase::bench;

struct Unit {
  std::string name;
  std::int64_t N, C, L, K, D;
  bool is_snake;
};

struct Asked {
  pp::Device device = pp::Device::cuda(0);
  std::vector<std::string> precisions{"tf32", "f16"}, data{"normal"};
  std::string match, json;
};

/// Units of HiFi-GAN V1 (861 frames, and 32), DAC and Oobleck (10 s).
std::vector<Unit> units() {
  std::vector<Unit> all;
  for (const auto& [name, N, length] :
       {std::tuple{"hifigan_16x861", 16, 220416}, {"hifigan_1x861", 1, 220416}, {"hifigan_1x32", 1, 8192}})
    for (const std::int64_t C : {32, 64, 128})
      for (const std::int64_t K : {3, 7, 11})
        for (const std::int64_t D : {1, 5})
          all.push_back({pp::concat(name, "_c", C, "_k", K, "_d", D), N, C, length * 32 / C, K, D, false});
  for (const std::int64_t D : {1, 9}) {
    all.push_back({pp::concat("dac_c192_d", D), 1, 192, 220672, 7, D, true});
    all.push_back({pp::concat("dac_c96_d", D), 1, 96, 441344, 7, D, true});
    all.push_back({pp::concat("oobleck_c128_d", D), 1, 128, 441344, 7, D, true});
  }
  return all;
}

class Table {
 public:
  explicit Table(const Asked& asked) : asked_(asked), kinds_(bench::mixed_data(bench::synthetic_speech())) {}

  int time_all() {
    const pp::NoGradGuard no_grad;
    const pp::DeviceGuard device(asked_.device);
    const std::regex match(asked_.match);
    std::printf("%-28s %-5s %-20s %10s %10s %8s\n", "", "", "", "us", "steps us", "ratio");
    for (const Unit& unit : units())
      if (asked_.match.empty() || std::regex_search(unit.name, match))
        for (const std::string& precision : asked_.precisions)
          for (const std::string& data : asked_.data) time(unit, precision, data);
    pp::require<pp::Error>(!records_.empty(), "no unit is selected: see --match");
    return 0;
  }
  void check() const {
    for (const std::string& name : asked_.data) {
      const bool is_known = std::any_of(kinds_.begin(), kinds_.end(), [&](const auto& kind) { return kind.name == name; });
      pp::require<pp::Error>(name == "normal" || is_known, "--data: expected normal or a kind of mixed_data.cpp, got '", name,
                             "'");
    }
  }

 private:
  /// `normal` with the magnitudes of a kind of data, unless that changes the other operand.
  pp::Tensor changed(const std::string& data, bench::Changed operand, const pp::Tensor& normal) const {
    if (data == "normal") return normal;
    const auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const auto& one) { return one.name == data; });
    const bool is_source = operand == bench::Changed::source;
    if (kind->changed != operand) return normal;
    return kind->make(normal, is_source ? bench::Dimensions{0, -1, 1} : bench::Dimensions{-1, 0, 1});
  }

  void time(const Unit& unit, const std::string& precision, const std::string& data) {
    const bool is_16_bit = precision == "f16" || precision == "bf16";
    const pp::DType dtype = is_16_bit ? pp::program::parse_dtype(precision) : pp::DType::f32;
    const pp::PrecisionGuard guard(is_16_bit ? pp::Precision::fp32 : pp::parse_precision(precision));
    const auto moved = [&](const pp::Tensor& tensor) { return tensor.to(dtype).to(asked_.device); };
    const pp::Tensor x =
        changed(data, bench::Changed::source, pp::Tensor::randn({unit.N, unit.C, unit.L}, {.device = pp::Device::cpu()}));
    const pp::Tensor w = changed(data, bench::Changed::weights,
                                 pp::Tensor::randn({unit.C, unit.C, unit.K}, {.device = pp::Device::cpu()}) * 0.05);
    if (!x.defined() || !w.defined()) return;
    const std::int64_t K = unit.is_snake ? 1 : unit.K;
    const pp::Tensor source = moved(x), first = moved(w),
                     second = moved(pp::Tensor::randn({unit.C, unit.C, K}, {.device = pp::Device::cpu()}) * 0.05),
                     bias = moved(pp::Tensor::randn({unit.C}, {.device = pp::Device::cpu()})),
                     alpha = moved(pp::Tensor::uniform({unit.C}, 0.5, 2, {.device = pp::Device::cpu()}));
    pp::ConvInputOptions input{pp::Activation::leaky_relu, 0.1};
    if (unit.is_snake) input = {pp::Activation::snake, 0, alpha};
    const auto whole = [&](int) { (void)pp::residual_unit(source, {first, bias, unit.D, input}, {second, bias, 1, input}); };
    const bool is_read = unit.is_snake && is_16_bit;  // where no kernel applies Snake as it stores
    const pp::ConvOutputOptions output =
        is_read ? pp::ConvOutputOptions{} : pp::ConvOutputOptions{input.activation, input.slope, input.alpha};
    const auto steps = [&](int) {
      const pp::Tensor middle =
          pp::conv1d(source, first, bias, {.padding = unit.D * (unit.K - 1) / 2, .dilation = unit.D}, output, input);
      (void)pp::conv1d(middle, second, bias, {.padding = (K - 1) / 2}, {.residual = source},
                       is_read ? input : pp::ConvInputOptions{});
    };
    const std::vector<double> us = bench::time_alternating({whole, steps}, pp::cuda::current_stream(asked_.device.index));
    std::printf("%-28s %-5s %-20s %10.1f %10.1f %8.2f\n", unit.name.c_str(), precision.c_str(), data.c_str(), us[0], us[1],
                us[1] / us[0]);
    std::fflush(stdout);
    records_.push_back(
        {{"unit", unit.name}, {"precision", precision}, {"data", data}, {"us_burst", us[0]}, {"us_steps", us[1]}});
    save();
  }

  void save() const {
    if (asked_.json.empty()) return;
    const nlohmann::json all{{"suite", "residual_units"}, {"records", records_}};
    pp::AtomicFile file("bench/residual_units", asked_.json);
    const std::string text = all.dump(1) + "\n";
    file.write(text.data(), text.size());
    file.commit();
  }

  const Asked& asked_;
  std::vector<bench::MixedData> kinds_;
  nlohmann::json records_ = nlohmann::json::array();
};

}  // namespace

int main(int argc, char** argv) {
  Asked asked;
  const auto describe = [&](pp::program::Arguments& app, pp::program::Action& action) {
    pp::program::add_device(app, asked.device);
    app.add_option("--match", asked.match, "only units whose name matches this regular expression");
    app.add_option("--precisions", asked.precisions, "of tf32, fp32, ieee, f16 and bf16; default: tf32,f16").separated_by(',');
    app.add_option("--data", asked.data, "normal and kinds of bench/mixed_data.cpp; default: normal").separated_by(',');
    app.add_option("--json", asked.json, "file for the records, written again after each");
    action = [&] {
      Table table(asked);
      pp::program::as_usage([&] {
        pp::require<pp::Error>(asked.device.is_cuda(), "--device: expected a GPU, got ", pp::to_string(asked.device));
        table.check();
        return 0;
      });
      return table.time_all();
    };
  };
  return pp::program::run_main(argc, argv, "residual_units", "Times residual units and their steps.", describe);
}
