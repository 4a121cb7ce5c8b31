#include "networks/gan/discriminators.hpp"

#include <doctest/doctest.h>

#include <array>

#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/network_checks.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr double kSixteenth = 1.0 / 16;

Tensor audio(std::int64_t length) { return uniform_f64({2, 1, length}, -1, 1).to(DType::f32); }

}  // namespace

// The numbers of weights are those of PyTorch's modules (tests/golden/make_gan.py), which the original code agrees with.
TEST_CASE("the published discriminators have the originals' names, shapes and numbers of weights") {
  MultiPeriodDiscriminator periods;
  const StateOf of_periods(periods);
  CHECK(of_periods["discriminators.4.convs.3.weight_v"].shape() == Shape{1024, 512, 5, 1});
  CHECK(of_periods["discriminators.0.convs.0.weight_g"].shape() == Shape{32, 1, 1, 1});
  CHECK(of_periods["discriminators.1.conv_post.bias"].shape() == Shape{1});
  CHECK(periods.parameter_count() == 41'105'770);
  MultiScaleDiscriminator scales;
  const StateOf of_scales(scales);
  CHECK(of_scales["discriminators.0.convs.1.weight_orig"].shape() == Shape{128, 32, 41});
  CHECK(of_scales["discriminators.0.convs.1.weight_u"].shape() == Shape{128});
  CHECK(of_scales["discriminators.0.convs.1.weight_v"].shape() == Shape{32 * 41});
  CHECK(of_scales["discriminators.2.convs.4.weight_v"].shape() == Shape{1024, 32, 41});
  MultiResolutionDiscriminator resolutions;
  CHECK(scales.parameter_count() == 29'618'821);
  CHECK(resolutions.parameter_count() == 280'902);
  CHECK(StateOf(resolutions)["discriminators.2.convs.1.weight_v"].shape() == Shape{32, 32, 3, 9});
}

TEST_CASE("maps: one for each layer, the scores last; forward() joins the scores") {
  MultiPeriodDiscriminator periods({.periods = {2, 3}, .channel_mult = kSixteenth});
  const auto maps = periods.features(audio(100));
  REQUIRE(maps.size() == 2);
  REQUIRE(maps[1].size() == 6);
  CHECK(maps[0][0].shape() == Shape{4, 2, 17});  // 2 rows of 2 columns of 50, stride 3
  CHECK(maps[1][0].shape() == Shape{6, 2, 12});  // 102 samples in 3 columns
  CHECK(maps[1][5].shape() == Shape{6, 1, 1});
  CHECK(periods(audio(100)).shape() == Shape{2, 2 + 3});
  MultiScaleDiscriminator scales({.channel_mult = 0.125});
  const auto of_scales = scales.features(audio(256));
  REQUIRE(of_scales.size() == 3);
  CHECK(of_scales[0].size() == 8);
  CHECK(of_scales[1][0].shape() == Shape{2, 16, 129});
  CHECK(of_scales[2][0].shape() == Shape{2, 16, 65});
}

TEST_CASE("features_of_two gives what two calls of features give, also under spectral norm") {
  const auto check = [](const auto& make) {
    const Tensor first = uniform_f64({2, 1, 700}, -1, 1, 1), second = uniform_f64({2, 1, 700}, -1, 1, 2);
    default_generator().seed(5);
    auto together = make();
    default_generator().seed(5);
    auto apart = make();
    for (Module* module : std::array<Module*, 2>{&together, &apart}) module->to(DType::f64);
    for (int step = 0; step < 2; ++step) {
      const FeaturesOfTwo maps = together.features_of_two(first, second);
      const std::vector<FeatureMaps> of_first = apart.features(first), of_second = apart.features(second);
      REQUIRE(maps.first.size() == of_first.size());
      REQUIRE(maps.second.size() == of_second.size());
      for (std::size_t i = 0; i < of_first.size(); ++i)
        for (std::size_t k = 0; k < of_first[i].size(); ++k) {
          CHECK(max_difference(maps.first[i][k], of_first[i][k]) <= 1e-12);
          CHECK(max_difference(maps.second[i][k], of_second[i][k]) <= 1e-12);
        }
    }
    CHECK_THROWS_AS((void)together.features_of_two(first, uniform_f64({1, 1, 700}, -1, 1, 2)), ShapeError);
  };
  check([] { return MultiPeriodDiscriminator({.periods = {2, 3}, .channel_mult = kSixteenth}); });
  check([] { return MultiScaleDiscriminator({.channel_mult = 0.125}); });
  check([] { return MultiResolutionDiscriminator({.resolutions = {{64, 16, 32}}, .channel_mult = 0.125}); });
}

TEST_CASE("a period's maps follow gradients to the audio, each sample once") {
  MultiPeriodDiscriminator periods({.periods = {3}, .channel_mult = kSixteenth});
  Tensor x = audio(7);
  x.set_requires_grad(true);
  mean(periods(x)).backward();
  CHECK(x.grad().shape() == x.shape());
}

TEST_CASE("what discriminators refuse") {
  MultiPeriodDiscriminator periods({.periods = {11}, .channel_mult = kSixteenth});
  CHECK_THROWS_WITH_AS((void)periods.features(Tensor::ones({2, 2, 9})),
                       "MultiPeriodDiscriminator: expected audio (N, 1, L >= 1), got (2, 2, 9)", ShapeError);
  CHECK_THROWS_AS(MultiPeriodDiscriminator({.periods = {0}}), ShapeError);
  CHECK_THROWS_WITH_AS(MultiPeriodDiscriminator({.channel_mult = 0.01}),
                       "MultiPeriodDiscriminator: expected channel_mult that leaves a channel of 32, got 0.01", ShapeError);
  CHECK_THROWS_AS(MultiScaleDiscriminator({.channel_mult = 0.05}), ShapeError);
  MultiResolutionDiscriminator resolutions({.resolutions = {{64, 16, 32}}, .channel_mult = kSixteenth});
  CHECK_THROWS_WITH_AS(
      (void)resolutions.features(audio(24)),
      "MultiResolutionDiscriminator: expected audio of more than 24 samples for an n_fft of 64, got (2, 1, 24)", ShapeError);
  CHECK_THROWS_AS(MultiResolutionDiscriminator({.resolutions = {{64, 128, 32}}}), ShapeError);
}
