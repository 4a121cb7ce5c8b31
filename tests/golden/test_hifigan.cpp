#include "golden/hifigan.hpp"

#include <doctest/doctest.h>

#include "layers/weight_norm.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::golden;
using namespace polyphase::testing;

namespace {

HifiganConfig small(bool two_convolutions) {
  return {.two_convolutions = two_convolutions,
          .upsample_rates = {4, 2},
          .upsample_kernel_sizes = {8, 4},
          .upsample_initial_channel = 8,
          .resblock_kernel_sizes = {3, 5},
          .resblock_dilation_sizes = {{1, 3}, {1}},
          .num_mels = 6};
}

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return parse_hifigan_config(json); });
}

}  // namespace

TEST_CASE("the generator has the reference implementation's names") {
  HifiganGenerator generator(small(true));
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
  HifiganGenerator generator(small(false));
  const NamedTensors state = generator.state_dict();
  CHECK(state.size() == 2 * (2 + 2 + 2 * 3));
  CHECK(std::any_of(state.begin(), state.end(), [](const auto& entry) { return entry.first == "resblocks.0.convs.1.weight"; }));
}

TEST_CASE("the audio is as long as the rates say and within [-1, 1]") {
  HifiganGenerator generator(small(true));
  const Tensor audio = generator(Tensor::randn({2, 6, 5}));
  CHECK(audio.shape() == Shape{2, 1, 40});
  for (const float value : audio.detach().to_vector<float>()) CHECK(std::abs(value) <= 1);
}

TEST_CASE("a configuration that does not fit is refused in words") {
  CHECK(error_for("[").starts_with("hifigan: config: "));
  CHECK(error_for("{}").find("resblock") != std::string::npos);
  CHECK(error_for(R"({"resblock":"3"})") == "hifigan: config: expected resblock 1 or 2, got 3");
  const std::string start = R"({"resblock":1,"upsample_initial_channel":8,)";
  CHECK(
      error_for(
          start +
          R"("upsample_rates":[2],"upsample_kernel_sizes":[],"resblock_kernel_sizes":[3],"resblock_dilation_sizes":[[1]]})") ==
      "hifigan: config: expected as many upsample_kernel_sizes as upsample_rates");
  CHECK(error_for(
            start +
            R"("upsample_rates":[2],"upsample_kernel_sizes":[4],"resblock_kernel_sizes":[3],"resblock_dilation_sizes":[]})") ==
        "hifigan: config: expected as many resblock_dilation_sizes as resblock_kernel_sizes");
  CHECK(parse_hifigan_config(
            start +
            R"("upsample_rates":[2],"upsample_kernel_sizes":[4],"resblock_kernel_sizes":[3],"resblock_dilation_sizes":[[1]]})")
            .num_mels == 80);
}
