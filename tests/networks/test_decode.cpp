#include "networks/decode.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "networks/bigvgan.hpp"
#include "networks/hifigan.hpp"
#include "networks/registry.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "support/generator.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "tensor/memory.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

HifiGan generator() {
  manual_seed(9);
  HifiGan net({{.upsample_rates = {4, 2},
                .upsample_kernel_sizes = {8, 4},
                .upsample_initial_channel = 32,
                .resblock_kernel_sizes = {3, 7},
                .resblock_dilation_sizes = {{1, 3}, {1}},
                .num_mels = 6}});
  net.eval();
  return net;
}

struct Decoded {
  Tensor audio;
  std::size_t pieces = 0;
};

Decoded decoded(Network& net, const Tensor& input, const DecodeOptions& options) {
  std::vector<Tensor> pieces;
  decode(net, input, options, [&](const Tensor& audio) { pieces.push_back(audio.cpu()); });
  return {cat(pieces, 2), pieces.size()};
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.is_open(), path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("in pieces of any size the audio is the whole's, bit for bit on the CPU") {
  HifiGan net = generator();
  const Tensor mel = random_f64({2, 6, 41}).to(DType::f32);
  const NoGradGuard no_grad;
  const Tensor expected = net(mel).cpu();
  for (const std::int64_t frames : {0, 1, 7, 40, 41, 1000}) {
    CAPTURE(frames);
    const Decoded got = decoded(net, mel, {.frames_at_a_time = frames});
    if (default_device().is_cpu()) CHECK(max_difference(got.audio, expected) == 0);
    CHECK(got.audio.shape() == expected.shape());
    CHECK((got.pieces > 1) == (frames > 0 && frames < 41));
  }
}

TEST_CASE("tensors stay within the memory that is given, and the audio is the same") {
  HifiGan net = generator();
  const Tensor mel = random_f64({1, 6, 3000}).to(DType::f32);
  const Device device = default_device();
  const NoGradGuard no_grad;
  reset_peak_memory(device);
  const std::size_t live = memory_stats(device).live_bytes;
  Tensor expected = net(mel);
  const std::size_t whole = memory_stats(device).peak_bytes;
  const std::size_t memory = live + (whole - live) / 10;
  const double sum = expected.to(DType::f64).to_vector<double>()[12345];
  expected = {};
  std::int64_t samples = 0;
  double same = 0;
  reset_peak_memory(device);
  decode(net, mel, {.memory = memory}, [&](const Tensor& audio) {
    const std::int64_t place = 12345 - samples;
    if (place >= 0 && place < audio.size(2)) same = audio.to(DType::f64).to_vector<double>()[static_cast<std::size_t>(place)];
    samples += audio.size(2);
  });
  CHECK(samples == 24000);
  CHECK(memory_stats(device).peak_bytes <= memory);
  if (device.is_cpu()) CHECK(same == sum);
  CHECK(frames_within(net, mel.shape(), memory) < 3000);
  CHECK(frames_within(net, mel.shape(), 4 * whole) == 3000);
}

TEST_CASE("memory does not grow with the length: BigVGAN, ten times as long within the same limit") {
  manual_seed(10);
  BigVgan net({small_generator(true)});
  net.eval();
  const Device device = default_device();
  const auto peak_of = [&](std::int64_t frames, std::size_t memory) {
    const Tensor mel = Tensor::zeros({1, 6, frames});
    const std::size_t own = static_cast<std::size_t>(mel.numel()) * sizeof(float);  // lies there too
    reset_peak_memory(device);
    std::int64_t samples = 0, pieces = 0;
    decode(net, mel, {.memory = memory == 0 ? 0 : memory + own},
           [&](const Tensor& audio) { samples += audio.size(2), ++pieces; });
    CHECK(samples == 8 * frames);
    CHECK((pieces > 1) == (memory > 0));
    return memory_stats(device).peak_bytes - own;
  };
  const std::size_t memory = peak_of(900, 0), longer = peak_of(12000, memory), longest = peak_of(24000, memory);
  CHECK(peak_of(1200, memory) <= memory);  // in two pieces, which may be shorter than the memory allows
  CHECK(longer <= memory);
  CHECK(longest <= longer + longer / 20);
  CHECK(peak_of(12000, 0) > 5 * memory);
}

TEST_CASE("what cannot be done is said") {
  HifiGan net = generator();
  const auto sink = [](const Tensor&) {};
  const Tensor mel = Tensor::zeros({1, 6, 50});
  CHECK(error_of<Error>([&] { return decode(net, mel, {.memory = 1000}, sink), 0; }).find("decode: expected at least ") !=
        std::string::npos);
  CHECK(error_of<Error>([&] { return decode(net, mel, {.frames_at_a_time = -1}, sink), 0; }).find("got -1") !=
        std::string::npos);
  CHECK(error_of<ShapeError>([&] {
          return decode(net, Tensor::zeros({6, 50}), {}, sink), 0;
        }).find("(6, 50)") != std::string::npos);
  CHECK(error_of<ShapeError>([&] {
          return decode(net, Tensor::zeros({1, 5, 50}), {}, sink), 0;
        }).find("(N, 6, frames >= 1)") != std::string::npos);
}

// Takes half a minute and 16 GB on a GPU, hours on a CPU: POLYPHASE_LONG_TESTS=1 POLYPHASE_TEST_DEVICE=cuda:0.
TEST_CASE("an hour of BigVGAN at 44 kHz while the allocator has 16 GB") {
  if (std::getenv("POLYPHASE_LONG_TESTS") == nullptr) SKIP_TEST("takes long: set POLYPHASE_LONG_TESTS=1");
  constexpr std::size_t kLimit = std::size_t{16} << 30U;
  constexpr std::int64_t kHop = 512, kFrames = 3600LL * 44100 / kHop, kBegin = 860, kCompared = 800;
  const Device device = default_device();
  if (device.is_cuda()) cuda::set_memory_limit(device.index, kLimit);
  manual_seed(3);
  const std::unique_ptr<Network> net = make_network("bigvgan", text_of(NETWORK_CONFIGS "/bigvgan_v2_44k_512x.json"));
  net->eval();
  const Tensor mel = Tensor::randn({1, 128, kFrames}, {.device = Device::cpu()});
  const NoGradGuard no_grad;
  const Tensor expected = (*net)(mel.narrow(2, 0, kBegin).to(device)).narrow(2, 0, kCompared * kHop).cpu();
  reset_peak_memory(device);
  std::int64_t samples = 0;
  double largest = 0, difference = 0;
  decode(*net, mel, {.memory = kLimit - kLimit / 16}, [&](const Tensor& audio) {
    const Tensor piece = audio.cpu();
    if (samples < expected.size(2)) {
      const std::int64_t count = std::min(piece.size(2), expected.size(2) - samples);
      difference = std::max(difference, max_difference(piece.narrow(2, 0, count), expected.narrow(2, samples, count)));
    }
    samples += piece.size(2);
    largest = std::max(largest, max(abs(piece)).item());
  });
  CHECK(samples == kFrames * kHop);
  CHECK(std::isfinite(largest));
  CHECK(memory_stats(device).peak_bytes <= kLimit);
  const double peak = max(abs(expected)).item();
  CHECK(peak > 0);
  CHECK(difference <= (device.is_cpu() ? 0 : 1e-4) * peak);
}
