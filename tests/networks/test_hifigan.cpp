#include "networks/hifigan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "layers/activations.hpp"
#include "layers/weight_norm.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "support/generator.hpp"
#include "support/helpers.hpp"
#include "support/stream.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

HifiGanConfig small(bool two_convolutions) { return {small_generator(two_convolutions)}; }

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return HifiGanConfig::parse(json); });
}

}  // namespace

TEST_CASE("the generator has the original's names") {
  HifiGan generator(small(true));
  weight_norm(generator);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : generator.state_dict()) names.push_back(name);
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  CHECK(has("conv_pre.weight_g"));
  CHECK(has("ups.1.weight_v"));
  CHECK(has("resblocks.3.convs1.0.bias"));
  CHECK(has("resblocks.2.convs2.1.weight_v"));
  CHECK(has("conv_post.bias"));
  // 3 for each of conv_pre, conv_post, 2 ups and, in 2 stages, 2*(2 + 1) convolutions.
  CHECK(names.size() == 3 * (2 + 2 + 2 * 6));
}

TEST_CASE("resblock 2 has half the convolutions, under another name") {
  HifiGan generator(small(false));
  const NamedTensors state = generator.state_dict();
  CHECK(state.size() == 2 * (2 + 2 + 2 * 3));
  CHECK(std::any_of(state.begin(), state.end(), [](const auto& entry) { return entry.first == "resblocks.0.convs.1.weight"; }));
}

TEST_CASE("the network is the formula of the paper, step by step") {
  manual_seed(3);
  HifiGan generator(small(true));
  generator.to(DType::f64);
  const NamedTensors state = generator.state_dict();
  const auto of = [&](const std::string& name) {
    return std::find_if(state.begin(), state.end(), [&](const auto& entry) { return entry.first == name; })->second;
  };
  const auto conv = [&](const Tensor& x, const std::string& name, std::int64_t dilation) {
    const Tensor w = of(name + ".weight");
    return conv1d(x, w, of(name + ".bias"), {.padding = (w.size(2) - 1) * dilation / 2, .dilation = dilation});
  };
  const Tensor mel = random_f64({2, 6, 7});
  Tensor x = conv(mel, "conv_pre", 1);
  const std::int64_t rates[] = {4, 2};
  const std::vector<std::int64_t> dilations[] = {{1, 3}, {1}};
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    const std::string up = concat("ups.", stage);
    x = conv_transpose1d(leaky_relu(x, 0.1), of(up + ".weight"), of(up + ".bias"),
                         {.stride = rates[stage], .padding = rates[stage] / 2});
    Tensor sum;
    for (std::int64_t block = 0; block < 2; ++block) {
      Tensor y = x;
      for (std::size_t i = 0; i < dilations[block].size(); ++i) {
        const std::string name = concat("resblocks.", 2 * stage + block, ".convs");
        y = y + conv(leaky_relu(conv(leaky_relu(y, 0.1), concat(name, "1.", i), dilations[block][i]), 0.1),
                     concat(name, "2.", i), 1);
      }
      sum = block == 0 ? y : sum + y;
    }
    x = sum / 2.0;
  }
  const Tensor expected = tanh(conv(leaky_relu(x, 0.01), "conv_post", 1));
  CHECK(relative_difference(f64_values(generator(mel).detach()), f64_values(expected.detach())) < 1e-13);
}

TEST_CASE("the audio is as long as the rates say and within [-1, 1]") {
  HifiGan generator(small(true));
  CHECK(generator.format().samples_per_frame == 8);
  CHECK(generator.format().rows == 6);
  const Tensor audio = generator(Tensor::randn({2, 6, 5}));
  CHECK(audio.shape() == Shape{2, 1, 40});
  for (const float value : audio.detach().to_vector<float>()) CHECK(std::abs(value) <= 1);
}

TEST_CASE("a configuration that does not fit is refused in words") {
  CHECK(error_for("[").starts_with("hifigan: config: "));
  CHECK(error_for("{}") == "hifigan: config: expected resblock");
  CHECK(error_for(R"({"resblock":"3"})") == "hifigan: config: expected resblock 1 or 2, got 3");
  const std::string start = R"({"resblock":1,"upsample_initial_channel":8,)";
  const auto rest = [&](const char* rates, const char* kernels, const char* sizes, const char* dilations) {
    return concat(start, R"("upsample_rates":)", rates, R"(,"upsample_kernel_sizes":)", kernels, R"(,"resblock_kernel_sizes":)",
                  sizes, R"(,"resblock_dilation_sizes":)", dilations, "}");
  };
  CHECK(error_for(rest("[2]", "[4,4]", "[3]", "[[1]]")) ==
        "hifigan: config: expected as many upsample_kernel_sizes as upsample_rates");
  CHECK(error_for(rest("[2]", "[4]", "[3,5]", "[[1]]")) ==
        "hifigan: config: expected as many resblock_dilation_sizes as resblock_kernel_sizes");
  CHECK(error_for(rest("[4]", "[2]", "[3]", "[[1]]")).find("got 2 for 4") != std::string::npos);
  CHECK(error_for(rest("[2,2,2,2]", "[4,4,4,4]", "[3]", "[[1]]")).find("got 8") != std::string::npos);
  CHECK(HifiGanConfig::parse(rest("[2]", "[4]", "[3]", "[[1]]")).num_mels == 80);
}
