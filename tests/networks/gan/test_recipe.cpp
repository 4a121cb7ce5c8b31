#include "networks/gan/recipe.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::string config(const std::string& more) {
  return R"({"num_mels": 8, "n_fft": 64, "hop_size": 16, "win_size": 64, "sampling_rate": 8000, "fmin": 0, "fmax": 3000,
    "discriminator_channel_mult": 0.125)" +
         more + "}";
}

std::string refusal(const std::string& more) {
  return error_of<FormatError>([&] { return make_discriminators(GanRecipe::parse(config(more))).size(); });
}

}  // namespace

TEST_CASE("a recipe: the originals' keys and defaults") {
  const GanRecipe hifigan =
      GanRecipe::parse(config(R"(, "batch_size": 3, "segment_size": 256, "learning_rate": 0.001, "fmax_for_loss": null)"));
  CHECK(hifigan.network == "hifigan");
  CHECK(hifigan.batch_size == 3);
  CHECK(hifigan.segment_size == 256);
  CHECK(hifigan.learning_rate == 0.001);
  CHECK(hifigan.clip_norm == 0);
  CHECK(gan_loss_mel(hifigan.config).options().mel.f_max == 0);  // half the rate
  CHECK(make_discriminators(hifigan)[1].first == "msd");
  const GanRecipe bigvgan = GanRecipe::parse(config(R"(, "activation": "snakebeta", "resolutions": [[64, 16, 32]])"));
  CHECK(bigvgan.network == "bigvgan");
  CHECK(bigvgan.clip_norm == 1000);
  CHECK(make_discriminators(bigvgan)[1].first == "mrd");
}

TEST_CASE("what a recipe refuses") {
  CHECK(refusal(R"(, "segment_size": 100)") == "gan: config: expected segment_size to be a multiple of hop_size=16, got 100");
  CHECK(refusal(R"(, "learning_rate": 0)") == "gan: config: expected learning_rate above 0, got 0");
  CHECK(refusal(R"(, "adam_b1": 1)") == "gan: config: expected adam_b1 in [0, 1), got 1");
  CHECK(refusal(R"(, "clip_grad_norm": -1)") == "gan: config: expected clip_grad_norm of at least 0, got -1");
  CHECK(refusal(R"(, "activation": "snake", "resolutions": [[64, 16]])") ==
        "gan: config: expected resolutions of three numbers, got 2");
  CHECK(refusal(R"(, "activation": "snake", "resolutions": [[63, 16, 32]])").find("even n_fft") != std::string::npos);
  CHECK(error_of<NotImplemented>([] { return GanRecipe::parse(config(R"(, "use_spectral_norm": true)")); }) ==
        "gan: config: expected use_spectral_norm false, got true");
  CHECK(error_of<FormatError>([] { return GanRecipe::parse("{}"); }) == "gan: config: expected hop_size");
}
