// Published networks against the original code's float64 results, if the files are available.
#include "golden/networks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "golden/golden.hpp"
#include "support/skip.hpp"
#include "support/temporary_directory.hpp"

using namespace polyphase;
using namespace polyphase::golden;
using namespace polyphase::testing;

namespace {

std::vector<std::string> files() {
  const char* given = std::getenv("POLYPHASE_GOLDEN");
  const std::filesystem::path folder = std::filesystem::path(given != nullptr ? given : SHARED_GOLDEN) / "networks";
  std::vector<std::string> found;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".safetensors") found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found;
}

/// The number of outputs that passed. The others fail, or are skipped with a reason.
int passed(const Options& options) {
  int count = 0;
  for (const std::string& file : files()) {
    CAPTURE(file);
    for (const Result& result : check_file(file, options)) {
      if (!result.skipped.empty()) continue;
      CHECK_MESSAGE(result.passed(), file, " ", result.name, ": error ", result.error, ", tolerance ", result.tolerance);
      ++count;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("every output of every file, in f64 and f32") {
  if (files().empty()) SKIP_TEST("no golden files of networks");
  CHECK(passed({.dtype = DType::f64}) >= 2);
  CHECK(passed({.dtype = DType::f32}) >= 2);
}

TEST_CASE("on a GPU") {
  if (device_count(DeviceType::cuda) == 0) SKIP_TEST("no CUDA device");
  if (files().empty()) SKIP_TEST("no golden files of networks");
  CHECK(passed({.device = Device::cuda(), .dtype = DType::f64}) >= 2);
  CHECK(passed({.device = Device::cuda(), .dtype = DType::f32}) >= 2);
}

TEST_CASE("a wrong number is found") {
  const auto all = files();
  const auto found = std::find_if(all.begin(), all.end(), [](const auto& f) { return f.ends_with("hifigan_v1.safetensors"); });
  if (found == all.end()) SKIP_TEST("no golden file of HiFi-GAN");
  SafetensorsFile content = load_safetensors(*found);
  for (auto& [name, tensor] : content.tensors) {
    if (name != "output/audio") continue;
    tensor = tensor.clone();
    Tensor one = tensor.narrow(2, 100, 1);
    one.fill_(one.item<double>() + 1e-8);
  }
  const TemporaryDirectory folder;
  const std::string path = folder.file("wrong.safetensors");
  save_safetensors(path, content.tensors, content.metadata);
  const std::vector<Result> results = check_file(path, {.dtype = DType::f64});
  REQUIRE(results.size() == 1);
  CHECK(!results[0].passed());
}
