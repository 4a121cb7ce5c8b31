// Times convolutions of f32 on numbers of different magnitudes, in turns with normal numbers: does the time depend on the data?
// Kinds of data: mixed_data.cpp. Shapes: data_case.hpp and shapes.hpp. On a GPU also with each kernel that can compute the
// problem.
//   data_independence [--device cpu] [--quick] [--seconds S] [--shapes conv128_k7,C] [--directions forward,dgrad,wgrad]
//                     [--precisions fp32,tf32] [--kernels automatic,all] [--data half_1e-5,speech] [--audio FILE] [--json FILE]
// Results are compared with float64 on a sample. Exits with 1 if one is wrong, 2 on a bad argument. The file is written again
// after each case, so that a stopped run leaves its results.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cuda/cuda.hpp"
#include "data_case.hpp"
#include "mixed_data.hpp"
#include "program/audio/audio_file.hpp"
#include "program/options.hpp"
#include "program/program.hpp"
#include "tensor/error.hpp"

namespace {

using namespace polyphase;
using bench::DataArrays;
using bench::DataCase;
using bench::DataShape;
using bench::MixedData;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> shapes, directions = {"forward", "dgrad", "wgrad"}, precisions, kernels, data;
  std::string device, audio, json;
  bool quick = false;
  double seconds = 0;  // 0: no limit
};

const std::vector<std::string> kGpuShapes = {
    "conv128_k7",  "C",           "hifigan_up2", "wavegan",   "conv64_k3",     "conv32_k11", "conv256_k3",
    "hifigan_up0", "block128_k3", "block128_k1", "conv64_k7", "conv128_k7_n4", "B",          "A"};
const std::vector<std::string> kQuickShapes = {"conv128_k7_n4", "C", "hifigan_up2", "wavegan"};
const std::vector<std::string> kQuickData = {"half_1e-5", "silence_1e-5",  "channels_half_1e-5", "weights_by_output",
                                             "speech",    "loud_every_64", "log_uniform_1e-6",   "outlier"};
const std::vector<std::string> kKernels = {"source_bulk",    "source_tma", "stride1",     "phased_stride2",
                                           "phased_stride4", "stationary", "preconverted"};
constexpr double kQuickSeconds = 60;

void use_defaults(Options& options) {
  if (options.device.empty()) options.device = cuda::device_count() > 0 ? "cuda:0" : "cpu";
  const bool is_cpu = options.device == "cpu";
  if (options.shapes.empty())
    options.shapes = is_cpu ? std::vector<std::string>{"conv_tiny", "up_tiny"} : options.quick ? kQuickShapes : kGpuShapes;
  if (options.precisions.empty())
    options.precisions = is_cpu ? std::vector<std::string>{"fp32"} : std::vector<std::string>{"fp32", "tf32"};
  if (options.kernels.empty()) options.kernels = {"automatic", "all"};
  if (options.data.empty() && options.quick) options.data = kQuickData;
  if (options.seconds == 0 && options.quick) options.seconds = kQuickSeconds;
}

ConvDirection parse_direction(const std::string& name) {
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad, ConvDirection::wgrad})
    if (concat(direction) == name) return direction;
  throw Error(concat("--directions: expected forward, dgrad or wgrad, got '", name, "'"));
}

void check(const Options& options) {
  for (const std::string& name : options.shapes) (void)bench::data_shape(name);
  for (const std::string& name : options.directions) (void)parse_direction(name);
  for (const std::string& name : options.precisions)
    require<Error>(name == "fp32" || name == "tf32", "--precisions: expected fp32 or tf32, got '", name, "'");
  require<Error>(options.device.empty() || options.device == "cpu" || options.device == "cuda:0",
                 "--device: expected cpu or cuda:0, got '", options.device, "'");
  for (const std::string& name : options.kernels)
    require<Error>(name == "automatic" || name == "all" || std::count(kKernels.begin(), kKernels.end(), name) > 0,
                   "--kernels: expected automatic, all or a kernel's name, got '", name, "'");
  const std::vector<MixedData> known = bench::mixed_data({0.0F});
  for (const std::string& name : options.data)
    require<Error>(std::any_of(known.begin(), known.end(), [&](const MixedData& one) { return one.name == name; }),
                   "--data: no kind of mixed_data.cpp is called '", name, "'");
}

std::vector<float> recording_of(const Options& options) {
  if (!options.audio.empty()) return program::read_audio(options.audio).channels.at(0);
  return bench::synthetic_speech();
}

std::unique_ptr<bench::DataDevice> make_device(const std::string& name) {
  if (name == "cpu") return bench::make_cpu_data_device();
#ifdef POLYPHASE_BENCH_CUDA
  return bench::make_gpu_data_device();
#else
  throw DeviceError(cuda::unavailable_reason());
#endif
}

/// The ends of a result and random elements between.
std::vector<std::int64_t> samples_of(std::int64_t size, ConvDirection direction) {
  const std::int64_t ends = std::min<std::int64_t>(size, 16);
  const int count = direction == ConvDirection::wgrad ? 64 : 4000;
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < ends; ++i) samples.insert(samples.end(), {i, size - 1 - i});
  std::mt19937_64 random(7);
  for (int i = 0; i < count; ++i) samples.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size)));
  return samples;
}

/// The allowed error over the sum of the terms' magnitudes (docs/precision.md): 3 * 2^-22 for a product in fp32, 2^-10 for one
/// in tf32, plus four roundings of f32 for the sum.
double allowed_error(const std::string& precision) {
  constexpr double kSum = 0x1p-22;
  return precision == "tf32" ? 0x1p-10 + kSum : 3 * 0x1p-22 + kSum;
}

/// The largest |result - exact| over the terms' magnitudes. A term below f32's normal numbers counts as the smallest of them,
/// because it is rounded like that.
double worst_error(const std::vector<bench::SampledOutput>& outputs, double terms) {
  double worst = 0;
  for (const bench::SampledOutput& one : outputs) {
    const double error =
        std::abs(one.result - one.exact) / (one.magnitude + terms * static_cast<double>(std::numeric_limits<float>::min()));
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

/// The layer's direction: the forward of a Conv1d is its problem's dgrad.
ConvDirection problem_direction(ConvDirection layer, bool is_conv1d) {
  if (!is_conv1d || layer == ConvDirection::wgrad) return layer;
  return layer == ConvDirection::forward ? ConvDirection::dgrad : ConvDirection::forward;
}

/// The array that a kind of data changes, and the meaning of its dimensions.
struct Place {
  Tensor DataArrays::*array;
  bench::Dimensions dimensions;
};
Place place_of(const DataCase& what, bench::Changed changed) {
  const bool is_wgrad = what.direction == ConvDirection::wgrad;
  const bool is_source = changed == bench::Changed::source;
  if (!is_source && !is_wgrad) {
    const bool is_forward = what.direction == ConvDirection::forward;  // w (C_in, C_out/G, K)
    return {&DataArrays::w, {-1, is_forward ? 1 : 0, is_forward ? 0 : 1}};
  }
  const bool reads_y = what.direction == ConvDirection::dgrad || (is_wgrad && what.is_conv1d == is_source);
  return {reads_y ? &DataArrays::y : &DataArrays::x, {0, is_source ? -1 : 1, is_source ? 1 : -1}};
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), device_(make_device(options.device)), kinds_(bench::mixed_data(recording_of(options))) {
    std::erase_if(kinds_, [&](const MixedData& kind) {
      return !options.data.empty() && std::count(options.data.begin(), options.data.end(), kind.name) == 0;
    });
    std::cout << device_->name()
              << "\nshape | direction | precision | kernel | data | mixed | us | us normal | ratio | sums again | error\n";
  }

  /// With the kernel that the library chooses, or with each of the other requested kernels.
  void run(const DataShape& shape, ConvDirection layer, const std::string& precision, bool is_automatic) {
    const DataCase what{shape.name, shape.problem, shape.is_conv1d, problem_direction(layer, shape.is_conv1d), precision};
    if (is_automatic && !is_wanted("automatic", false)) return;
    if (is_late()) {
      left_out_.push_back(concat(shape.name, ' ', layer, ' ', precision, is_automatic ? " automatic" : " all"));
      return;
    }
    DataArrays normal = normal_arrays(what.problem);
    for (const std::string& kernel : is_automatic ? std::vector<std::string>{"automatic"} : device_->kernels(what, normal))
      if (is_automatic || is_wanted(kernel, true)) run(what, layer, kernel, normal);
  }

  void finish() {
    if (!left_out_.empty())
      std::cout << "out of time: " << left_out_.size() << " cases left out, from " << left_out_.front() << " on\n";
    save();
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  [[nodiscard]] bool is_late() const {
    return options_.seconds > 0 && std::chrono::duration<double>(Clock::now() - begin_).count() > options_.seconds;
  }
  [[nodiscard]] bool is_wanted(const std::string& kernel, bool or_all) const {
    return std::any_of(options_.kernels.begin(), options_.kernels.end(),
                       [&](const std::string& name) { return name == kernel || (or_all && name == "all"); });
  }

  [[nodiscard]] DataArrays normal_arrays(const ConvProblem& p) const {
    const TensorOptions options{.dtype = DType::f32, .device = device_->device()};
    return {Tensor::randn({p.N, p.C_in, p.L_in}, options), Tensor::randn({p.C_in, p.channels_out_per_group(), p.K}, options),
            Tensor::randn({p.N, p.C_out, p.L_out}, options)};
  }

  void run(const DataCase& what, ConvDirection layer, const std::string& kernel, DataArrays& normal) {
    for (const MixedData& kind : kinds_) {
      std::string data = kind.name;
      if (what.direction == ConvDirection::wgrad && kind.changed == bench::Changed::weights)
        data.replace(0, std::string("weights").size(), "gradient");
      if (is_late()) {
        left_out_.push_back(concat(what.shape, ' ', layer, ' ', what.precision, ' ', kernel, ' ', data));
        continue;
      }
      const Place place = place_of(what, kind.changed);
      DataArrays mixed = normal;
      mixed.*place.array = kind.make(normal.*place.array, place.dimensions);
      if (!(mixed.*place.array).defined()) continue;
      Json record = measure(what, kernel, mixed, normal);
      record["shape"] = what.shape, record["direction"] = concat(layer), record["precision"] = what.precision;
      record["algorithm"] = kernel, record["data"] = data, record["mixed"] = bench::name_of(kind.mixed);
      if (kernel == "automatic") record["form"] = device_->chosen(what);
      report(record);
    }
  }

  [[nodiscard]] Json measure(const DataCase& what, const std::string& kernel, DataArrays& mixed, DataArrays& normal) {
    Tensor& result = mixed.result(what.direction);
    result.fill_(std::numeric_limits<double>::quiet_NaN());
    const std::uint64_t before = device_->recomputed();
    device_->run(what, kernel, mixed);
    const std::uint64_t again = device_->recomputed() - before;
    const double error = worst_error(device_->sampled(what, mixed, samples_of(result.numel(), what.direction)),
                                     bench::terms_of(what.problem, what.direction));
    device_->run(what, kernel, normal);  // packs its weights
    const bench::DataTimes times =
        device_->time([&] { device_->run(what, kernel, mixed); }, [&] { device_->run(what, kernel, normal); });
    return {{"suite", "data_independence"},
            {"us_burst", times.us_burst},
            {"us_normal", times.us_normal},
            {"computed_again", again},
            {"error", error}};
  }

  void report(const Json& record) {
    const double error = record["error"], us = record["us_burst"], normal = record["us_normal"];
    const bool right = error <= allowed_error(record["precision"]);
    ok_ = ok_ && right;
    for (const char* key : {"shape", "direction", "precision", "algorithm", "data", "mixed"})
      std::cout << record[key].get<std::string>() << " | ";
    std::cout << std::fixed << std::setprecision(1) << us << " | " << normal << std::setprecision(2) << " | " << us / normal
              << " | " << record["computed_again"] << " | " << std::scientific << std::setprecision(1) << error
              << std::defaultfloat << (right ? "" : " | WRONG") << std::endl;
    records_.push_back(record);
    save();
  }

  void save() const {
    if (options_.json.empty()) return;
    const Json root = {
        {"suite", "data_independence"}, {"device", device_->name()}, {"left_out", left_out_}, {"records", records_}};
    const std::string unfinished = options_.json + ".new";
    std::ofstream file(unfinished);
    file << root.dump(1) << '\n';
    file.close();
    require<Error>(file.good(), "cannot write '", unfinished, "'");
    std::filesystem::rename(unfinished, options_.json);
  }

  const Options& options_;
  std::unique_ptr<bench::DataDevice> device_;
  std::vector<MixedData> kinds_;
  Clock::time_point begin_ = Clock::now();
  Json records_ = Json::array();
  std::vector<std::string> left_out_;
  bool ok_ = true;
};

/// The library's choice comes first, so that a limit of time leaves out the least important cases.
int run_all(Options options) {
  use_defaults(options);
  Bench bench(options);
  for (const bool is_automatic : {true, false})
    for (const std::string& shape : options.shapes)
      for (const std::string& direction : options.directions)
        for (const std::string& precision : options.precisions)
          bench.run(bench::data_shape(shape), parse_direction(direction), precision, is_automatic);
  bench.finish();
  return bench.ok() ? 0 : 1;
}

void add_options(program::Arguments& app, Options& options) {
  app.add_option("--device", options.device, "cpu or cuda:0; the GPU where there is one without");
  app.add_flag("--quick", options.quick, "four shapes, eight kinds of data, at most about 60 s");
  app.add_option("--seconds", options.seconds, "after which no new case is begun").above_zero();
  app.add_option("--shapes", options.shapes, "names in data_case.hpp or shapes.hpp; on a CPU two tiny ones without")
      .separated_by(',');
  app.add_option("--directions", options.directions, "of the layer: forward, dgrad, wgrad").separated_by(',');
  app.add_option("--precisions", options.precisions, "fp32, tf32").separated_by(',');
  app.add_option("--kernels", options.kernels,
                 "automatic, the names of kernels, or all (each that can compute the problem); default: automatic,all")
      .separated_by(',');
  app.add_option("--data", options.data, "kinds of data, with their names in mixed_data.cpp; default: all").separated_by(',');
  app.add_option("--audio", options.audio, "a recording for the kind speech; synthetic without");
  app.add_option("--json", options.json, "file for the records");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const auto describe = [&](program::Arguments& app, program::Action& action) {
    add_options(app, options);
    app.callback([&] { program::as_usage([&] { check(options); }); });  // fails before anything is timed
    action = [&] { return run_all(options); };
  };
  return program::run_main(argc, argv, "data_independence",
                           "Times convolutions on numbers of mixed magnitudes in comparison with normal ones.", describe);
}
