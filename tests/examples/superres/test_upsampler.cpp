#include "upsampler.hpp"

#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "sound.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"
#include "tensor/memory.hpp"

using namespace superres;
using namespace superres::testing;
using polyphase::testing::kFloatRounding;

namespace {

UpsamplingNetwork make(int factor, bool causal) {
  pp::Generator generator(5);
  const pp::GeneratorGuard guard(generator);
  return UpsamplingNetwork({.factor = factor, .causal = causal, .channels = 8, .high_channels = 4});
}

}  // namespace

TEST_CASE("the result in chunks equals that of the whole, for any chunks and blocks") {
  for (const int factor : {2, 4, 8}) {
    for (const bool causal : {false, true}) {
      UpsamplingNetwork network = make(factor, causal);
      const std::int64_t length = 1503;
      const std::vector<float> low = noise(length);
      const pp::NoGradGuard no_grad;
      const std::vector<float> whole = network(pp::Tensor::from_vector(low, {1, 1, length})).to_vector<float>();
      for (const std::int64_t chunk : {1, 100, 333, 1503, 5000}) {
        if (chunk == 1 && factor != 4) continue;  // slow, and equal for every factor
        Upsampler upsampler(network, 1, chunk);
        std::vector<float> output;
        for (std::int64_t begin = 0; begin < length; begin += 250) {
          const std::int64_t count = std::min<std::int64_t>(250, length - begin);
          upsampler.process(std::span(low).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)), output);
        }
        upsampler.flush(output);
        REQUIRE(output.size() == whole.size());
        double worst = 0;
        for (std::size_t i = 0; i < whole.size(); ++i)
          worst = polyphase::testing::worse(worst, std::abs(static_cast<double>(output[i]) - whole[i]));
        CHECK(worst <= kFloatRounding);
      }
    }
  }
}

TEST_CASE("channels do not hear each other") {
  UpsamplingNetwork network = make(4, false);
  const std::vector<float> left = noise(600, 1);
  const std::vector<float> right = noise(600, 2);
  std::vector<float> frames;
  for (std::size_t i = 0; i < 600; ++i) frames.insert(frames.end(), {left[i], right[i]});
  Upsampler upsampler(network, 2, 256);
  std::vector<float> output;
  upsampler.process(frames, output);
  upsampler.flush(output);
  REQUIRE(output.size() == 2 * 2400);
  const std::vector<float> left_alone = upsample(network, left);
  const std::vector<float> right_alone = upsample(network, right);
  for (std::size_t i = 0; i < 2400; ++i) {
    CHECK(std::abs(output[2 * i] - left_alone[i]) <= kFloatRounding);
    CHECK(std::abs(output[2 * i + 1] - right_alone[i]) <= kFloatRounding);
  }
}

TEST_CASE("the memory it holds does not grow with the stream") {
  UpsamplingNetwork network = make(2, false);
  Upsampler upsampler(network, 1, 512);
  const std::vector<float> block = noise(512);
  std::vector<float> output;
  std::size_t most = 0;
  for (int i = 0; i < 40; ++i) {
    upsampler.process(block, output);
    most = std::max(most, output.size());
    output.clear();
  }
  CHECK(most <= 2048);  // one or two chunks for each block; nothing accumulates
  CHECK(upsample(network, {}).empty());
}

TEST_CASE("its memory hardly grows with the channels, which are independent") {
  UpsamplingNetwork network = make(4, false);
  const int channels = 600;
  const std::int64_t frames = 12000;
  const std::vector<float> low = noise(channels * frames);
  Upsampler upsampler(network, channels);
  std::vector<float> output;
  pp::reset_peak_memory(pp::Device::cpu());
  const std::size_t before = pp::memory_stats(pp::Device::cpu()).live_bytes;
  upsampler.process(low, output);
  upsampler.flush(output);
  // If it were computed in one pass, the first convolution alone would need 600*12000*8 floats.
  CHECK(pp::memory_stats(pp::Device::cpu()).peak_bytes - before < 40'000'000);
  REQUIRE(output.size() == low.size() * 4);
  for (const std::size_t c : {0U, 7U, 599U}) {
    std::vector<float> channel;
    for (std::size_t i = c; i < low.size(); i += channels) channel.push_back(low[i]);
    const std::vector<float> alone = upsample(network, channel);
    double worst = 0;
    for (std::size_t i = 0; i < alone.size(); ++i)
      worst = polyphase::testing::worse(worst, std::abs(static_cast<double>(output[i * channels + c]) - alone[i]));
    CHECK(worst <= kFloatRounding);
  }
}
