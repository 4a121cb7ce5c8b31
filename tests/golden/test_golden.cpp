// The library against PyTorch's float64 results: the small files in data/, and the large ones if they are available.
#include "golden/golden.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "device/backend.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/temporary_directory.hpp"

using namespace polyphase;
using namespace polyphase::golden;
using namespace polyphase::testing;

namespace {

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string data(const std::string& name) { return std::string(GOLDEN_DATA "/") + name + ".safetensors"; }

void check_all(const std::vector<std::string>& files, const Options& options) {
  for (const std::string& file : files) {
    CAPTURE(file);
    for (const Result& result : check_file(file, options)) {
      CAPTURE(result.name);
      CAPTURE(result.what);
      CAPTURE(result.worst);
      CAPTURE(result.skipped);
      CHECK(result.error <= result.tolerance);
      CHECK(result.passed());
    }
  }
}

std::vector<std::string> public_files() {
  const char* given = std::getenv("POLYPHASE_GOLDEN");
  return files_in(given != nullptr ? given : SHARED_GOLDEN);
}

bool holds_convolutions(const std::string& file) { return std::filesystem::path(file).filename().string().starts_with("conv"); }

/// Runs the files on GPU 0. Every case must pass, or may be skipped if `may_skip`. Returns how many passed.
std::ptrdiff_t passed_on_gpu(const std::vector<std::string>& files, Options options, bool may_skip = false) {
  options.device = Device::cuda();
  std::ptrdiff_t passed = 0;
  for (const std::string& file : files) {
    for (const Result& result : check_file(file, options)) {
      const bool skipped = may_skip && !result.skipped.empty();
      CHECK_MESSAGE((result.passed() || skipped), file, " ", result.name, " ", result.what, ": ", options.algorithm, " ",
                    options.precision, ": ", result.worst, " ", result.error, " of ", result.tolerance, " ", result.skipped);
      passed += result.passed();
    }
  }
  return passed;
}

// How many cases fail after `change` has modified the file's tensors.
template <class Function>
std::ptrdiff_t failures_after(const std::string& name, const Options& options, const Function& change) {
  const TemporaryDirectory directory;
  SafetensorsFile file = load_safetensors(data(name));
  for (auto& [key, tensor] : file.tensors) change(key, tensor);
  save_safetensors(directory.file("spoilt"), file.tensors, file.metadata);
  const std::vector<Result> results = check_file(directory.file("spoilt"), options);
  return std::count_if(results.begin(), results.end(), [](const Result& result) { return !result.passed(); });
}

// The text without "check: FILE: ".
std::string error_of_file(const NamedTensors& tensors, const Metadata& metadata) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("bad");
  save_safetensors(path, tensors, metadata);
  const std::string text = error_of<FormatError>([&] { return check_file(path, {}); });
  const std::string start = "check: " + path + ": ";
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

}  // namespace

TEST_CASE("the small files pass in the default types") {
  const std::vector<std::string> files = files_in(GOLDEN_DATA);
  REQUIRE(files.size() == 6);
  check_all(files, {});
}

TEST_CASE("the small files pass in float32 and float64, automatic and reference") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::reference}) {
      check_all(files_in(GOLDEN_DATA), {.algorithm = algorithm, .dtype = dtype});
    }
  }
}

TEST_CASE("convolution cases pass in 16 bits and in tf32") {
  check_all({data("conv1d_small")}, {.dtype = DType::f16});
  check_all({data("conv1d_small")}, {.dtype = DType::bf16});
  check_all({data("conv1d_small")}, {.precision = Precision::tf32});
}

TEST_CASE("all public files pass") {
  const std::vector<std::string> files = public_files();
  if (files.empty()) SKIP_TEST("the large golden files are not here (POLYPHASE_GOLDEN names their folder)");
  check_all(files, {});
}

TEST_CASE("on a GPU: every convolution case by every algorithm, in every dtype and precision, forward and gradients") {
  if (device_count(DeviceType::cuda) == 0) SKIP_TEST("no CUDA device");
  std::vector<std::string> files = files_in(GOLDEN_DATA);
  for (const std::string& file : public_files()) files.push_back(file);
  std::erase_if(files, [](const std::string& file) { return !holds_convolutions(file); });
  for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::direct, Algorithm::gemm, Algorithm::depthwise}) {
    const bool may_skip = algorithm == Algorithm::depthwise;
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      CHECK(passed_on_gpu(files, {.algorithm = algorithm, .dtype = dtype}, may_skip) > 0);
    for (const Precision precision : {Precision::ieee, Precision::tf32})
      CHECK(passed_on_gpu(files, {.precision = precision, .algorithm = algorithm}, may_skip) > 0);
  }
}

TEST_CASE("on a GPU: training traces and generators, by every algorithm that can do any convolution") {
  if (device_count(DeviceType::cuda) == 0) SKIP_TEST("no CUDA device");
  std::vector<std::string> files = files_in(GOLDEN_DATA);
  for (const std::string& file : public_files()) files.push_back(file);
  std::erase_if(files, holds_convolutions);
  for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::direct, Algorithm::gemm})
    for (const DType dtype : {DType::f64, DType::f32})
      CHECK(passed_on_gpu(files, {.algorithm = algorithm, .dtype = dtype}) > 0);
}

TEST_CASE("a result of the wrong accuracy fails") {
  const auto scaled = [](const std::string& ending, double factor) {
    return [=](const std::string& key, Tensor& tensor) {
      if (!key.ends_with(ending)) return;
      std::vector<double> values = tensor.to(DType::f64).to_vector<double>();
      for (double& value : values) value *= factor;
      tensor = Tensor::from_vector(values, tensor.shape()).to(tensor.dtype());
    };
  };
  const auto cases = static_cast<std::ptrdiff_t>(check_file(data("conv1d_small"), {}).size());
  // A tf32 rounding everywhere must not pass as float32, nor a float32 rounding as float64.
  for (const char* tensor : {"/y", "/grad_x", "/grad_weight"}) {
    CAPTURE(tensor);
    CHECK(failures_after("conv1d_small", {}, scaled(tensor, 1 + 0x1p-11)) == cases);
    CHECK(failures_after("conv1d_small", {.dtype = DType::f64}, scaled(tensor, 1 + 0x1p-24)) == cases);
  }
  CHECK(failures_after("conv1d_small", {}, scaled("/grad_bias", 1 + 0x1p-11)) > 0);
  CHECK(failures_after("train_sgd_l1", {}, scaled("first_output", 1 + 1e-9)) == 1);
  CHECK(failures_after("train_sgd_l1", {}, scaled("first_grad/2.bias", 1 + 1e-9)) == 1);
  CHECK(failures_after("train_sgd_l1", {}, scaled("losses", 1 + 1e-9)) == 1);
  CHECK(failures_after("train_sgd_l1", {}, scaled("final/6.bias", 1 + 1e-9)) == 1);
  CHECK(failures_after("hifigan_resblock1", {}, scaled("audio", 1 + 1e-9)) == 1);
}

TEST_CASE("a result that is not a number, or not there, fails") {
  CHECK(failures_after("hifigan_resblock2", {}, [](const std::string& key, Tensor& tensor) {
          if (key == "mel") tensor = Tensor::full(tensor.shape(), std::nan(""));
        }) == 1);
  CHECK(failures_after("hifigan_resblock2", {}, [](const std::string& key, Tensor& tensor) {
          if (key == "audio") tensor = tensor.slice(2, 0, 3);
        }) == 1);
}

TEST_CASE("where plain arithmetic overflows there is no tolerance, and nothing passes") {
  const TemporaryDirectory directory;
  const Tensor large = Tensor::full({1, 1, 4}, 300, {.dtype = DType::f64});
  save_safetensors(
      directory.file("large"),
      {{"c/x", large}, {"c/weight", large.narrow(2, 0, 1)}, {"c/y", Tensor::full({1, 1, 4}, 9e4, {.dtype = DType::f64})}},
      {{"c", R"({"op":"conv1d"})"}});
  CHECK(check_file(directory.file("large"), {}).at(0).passed());
  CHECK_FALSE(check_file(directory.file("large"), {.dtype = DType::f16}).at(0).passed());
}

TEST_CASE("training traces and generators have no tolerance in 16 bits and are skipped there") {
  for (const char* name : {"train_sgd_l1", "hifigan_resblock2"}) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const std::vector<Result> results = check_file(data(name), {.dtype = dtype});
      REQUIRE(results.size() == 1);
      CHECK(results[0].skipped == concat("it is checked in f32 and f64 only, there is no tolerance for ", dtype));
    }
  }
}

TEST_CASE("an algorithm that cannot do a case skips it, with the reason") {
  const std::vector<Result> results = check_file(data("conv1d_small"), {.algorithm = Algorithm::depthwise});
  const auto skipped = std::count_if(results.begin(), results.end(), [](const Result& r) { return !r.skipped.empty(); });
  const auto passed = std::count_if(results.begin(), results.end(), [](const Result& r) { return r.passed(); });
  CHECK(skipped > 0);
  CHECK(passed > 0);
  CHECK(skipped + passed == static_cast<std::ptrdiff_t>(results.size()));
  const std::vector<Result> trace = check_file(data("train_sgd_l1"), {.algorithm = Algorithm::depthwise});
  REQUIRE(trace.size() == 1);
  CHECK(trace[0].skipped.find("depthwise") != std::string::npos);
}

TEST_CASE("results are reported one by one, in the file's order") {
  std::vector<std::string> names;
  check_file(data("train_adam_mse"), {}, [&](const Result& result) { names.push_back(result.name); });
  CHECK(names == std::vector<std::string>{"first_output", "first_grad", "losses", "final"});
}

TEST_CASE("malformed golden files are refused in words") {
  const Tensor x = Tensor::ones({1, 2, 3}), w = Tensor::ones({2, 2, 1}), y = Tensor::ones({1, 2, 3});
  const NamedTensors good = {{"c/x", x}, {"c/weight", w}, {"c/y", y}};
  const auto error = [&](const char* json) { return error_of_file(good, {{"c", json}}); };
  CHECK(error_of_file(good, {}).starts_with("not a golden file: expected metadata of convolution cases (op)"));
  CHECK(error_of_file(good, {{"c", "[1]"}}).starts_with("not a golden file"));
  CHECK(error(R"({"op":"conv2d"})") == R"(case c: expected op conv_transpose1d or conv1d, got "conv2d")");
  CHECK(error(R"({"op":"conv1d","stride":"x"})") == R"(case c: expected a whole number for stride, got "x")");
  CHECK(error(R"({"op":"conv1d","stride":1.5})") == "case c: expected a whole number for stride, got 1.5");
  CHECK(error(R"({"op":"conv1d","speed":1})") == "case c: unknown setting speed");
  CHECK(error(R"({"op":"conv1d","groups":0})").find("groups 0") != std::string::npos);
  CHECK(error(R"({"op":"conv1d","groups":3})").find("groups 3") != std::string::npos);
  CHECK(error_of_file({{"c/x", x}, {"c/weight", w}}, {{"c", R"({"op":"conv1d"})"}}) == "tensor c/y is missing");
  CHECK(error_of_file({{"c/x", Tensor::ones({3})}, {"c/weight", w}, {"c/y", y}}, {{"c", R"({"op":"conv1d"})"}}) ==
        "case c: expected x (N, C, L) or (C, L), got (3,)");
  CHECK(error_of_file({{"c/x", x}, {"c/weight", w}, {"c/y", y}, {"c/bias", Tensor::ones({5})}},
                      {{"c", R"({"op":"conv1d"})"}}) == "case c: expected bias (2,), got (5,)");
  CHECK(error_of_file({{"c/x", x}, {"c/weight", w}, {"c/y", y}, {"c/grad_x", x}}, {{"c", R"({"op":"conv1d"})"}}) ==
        "case c: grad_x needs grad_y, and grad_bias a bias");
  CHECK(error_of_file({{"x", x}}, {{"net", "Tanh"}}) == "there are no tensors under init/");
  CHECK(error_of_file({{"init/0.weight", w}}, {{"net", "Tanh"}}) == "the network has no 0.weight");
  CHECK(error_of_file({{"init/x", w}}, {{"net", "Conv1d(2,2,1)"}}) == "tensor init/0.weight is missing");
  CHECK(error_of_file({{"init/0.weight", w}}, {{"net", "Conv1d(2,2,1)"}}) == "optimizer is missing in the metadata");
  CHECK(error_of_file({{"init/0.weight", w}}, {{"net", "Conv1d(2,2,1)"}, {"optimizer", "lion"}}) ==
        "optimizer: expected sgd, adam or adamw, got lion");
  CHECK(error_of_file({{"init/0.weight", w}}, {{"net", "Conv1d(2,2,1)"}, {"optimizer", "adam"}, {"betas", "0.9"}}) ==
        "betas: expected two numbers, got 0.9");
  CHECK(error_of_file({{"mel", x}}, {{"config", "{"}}).starts_with("hifigan: config: "));
}
