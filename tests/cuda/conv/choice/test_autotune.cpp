#include "cuda/conv/choice/autotune.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/cuda_conv.hpp"
#include "support/skip.hpp"
#include "support/temporary_directory.hpp"
#include "tensor/log.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// Keeps what is logged during its lifetime.
struct Heard {
  std::vector<std::string> lines;
  Heard() {
    set_log_callback([this](LogLevel, std::string_view text) { lines.emplace_back(text); });
  }
  ~Heard() { set_log_callback({}); }
};

}  // namespace

TEST_CASE("choices go through the file; a missing file is empty and says nothing") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("cache");
  const Heard heard;
  CHECK(cuda::read_autotune_cache(path).empty());
  const cuda::AutotuneChoices choices = {{"forward N=1", Algorithm::direct}, {"wgrad N=2", Algorithm::gemm}};
  cuda::write_autotune_cache(path, choices);
  CHECK(cuda::read_autotune_cache(path) == choices);
  CHECK(heard.lines.empty());
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files += entry.exists();
  CHECK(files == 1);
}

TEST_CASE("a malformed file is ignored with a warning that names the line") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("cache");
  const auto warning_of = [&](const std::string& content) {
    std::ofstream(path) << content;
    const Heard heard;
    CHECK(cuda::read_autotune_cache(path).empty());
    return heard.lines.empty() ? std::string("no warning") : heard.lines.front();
  };
  const std::string start = "autotune: ignoring '" + path + "': line ";
  CHECK(warning_of("\x7f"
                   "ELF") == start + "1: expected 'polyphase autotune 1'");
  CHECK(warning_of("polyphase autotune 1\nforward\n") == start + "2: expected a key, a tab and an algorithm");
  CHECK(warning_of("polyphase autotune 1\na\tgemm\nb\tfft\n") ==
        start + "3: algorithm: expected one of automatic, direct, depthwise, tensor_core, gemm, reference; got 'fft'");
}

TEST_CASE("keys differ in every field, the direction, the precision and the device") {
  const ConvProblem p = sized({.N = 1, .C_in = 2, .C_out = 4, .L_in = 9, .K = 3, .S = 1});
  const std::string key = cuda::autotune_key(p, ConvDirection::forward, Precision::fp32, "GPU");
  ConvProblem other = p;
  other.OP = 1;
  CHECK(key != cuda::autotune_key(other, ConvDirection::forward, Precision::fp32, "GPU"));
  CHECK(key != cuda::autotune_key(p, ConvDirection::dgrad, Precision::fp32, "GPU"));
  CHECK(key != cuda::autotune_key(p, ConvDirection::forward, Precision::tf32, "GPU"));
  CHECK(key != cuda::autotune_key(p, ConvDirection::forward, Precision::fp32, "other GPU"));
}

TEST_CASE("measured choices compute the same") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const AutotuneGuard guard(true);
  const ConvArrays<float> arrays(sized({.N = 2, .C_in = 8, .C_out = 8, .L_in = 300, .K = 4, .S = 2, .G = 8}), kSmallIntegers);
  for (const ConvDirection direction : kDirections)
    for (int turn = 0; turn < 2; ++turn) {
      bool intact = false;
      const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::automatic), intact);
      CHECK(same_bits(got, arrays.run(direction, Algorithm::reference)));
      CHECK(intact);
    }
}
