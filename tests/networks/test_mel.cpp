#include "networks/mel.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

const std::string kHifiGan =
    R"({"n_fft": 1024, "num_mels": 80, "sampling_rate": 22050, "hop_size": 256, "win_size": 1024, "fmin": 0, "fmax": 8000})";

}  // namespace

TEST_CASE("HiFi-GAN's mel front end, from its configuration") {
  MelSpectrogram mel = hifigan_mel(kHifiGan);
  CHECK(mel(Tensor::ones({2, 2560})).shape() == Shape{2, 80, 10});
  CHECK(mel.options().mel.scale == MelScale::slaney);
  CHECK(mel.options().mel.is_normalized);
  CHECK(mel.options().mel.f_max == 8000);
  CHECK(mel.options().power_floor == 1e-9);
  CHECK(mel.options().clip == 1e-5);
  // BigVGAN's fmax of 24 kHz is null: half the rate.
  const MelSpectrogram whole = hifigan_mel(
      R"({"n_fft": 512, "num_mels": 100, "sampling_rate": 24000, "hop_size": 128, "win_size": 400, "fmin": 20, "fmax": null})");
  CHECK(whole.options().mel.f_max == 0);
  CHECK(whole.options().mel.f_min == 20);
  CHECK(whole.options().win_length == 400);
}

TEST_CASE("Vocos' mel front end, from its configuration") {
  MelSpectrogram mel = vocos_mel(R"({"feature_extractor": {"class_path": "vocos.feature_extractors.MelSpectrogramFeatures",
      "init_args": {"sample_rate": 24000, "n_fft": 1024, "hop_length": 256, "n_mels": 100, "padding": "center"}}})");
  CHECK(mel(Tensor::ones({2, 2560})).shape() == Shape{2, 100, 11});
  CHECK(mel.options().mel.scale == MelScale::htk);
  CHECK(!mel.options().mel.is_normalized);
  CHECK(mel.options().power_floor == 0);
  CHECK(mel.options().clip == 1e-7);
  MelSpectrogram same = vocos_mel(R"({"feature_extractor": {"init_args": {"padding": "same"}}})");
  CHECK(same(Tensor::ones({2, 2560})).shape() == Shape{2, 100, 10});
}

TEST_CASE("a configuration of a front end that does not fit is refused in words") {
  const auto hifigan = [](const std::string& json) {
    return error_of<FormatError>([&] { return hifigan_mel(json).options().hop_length; });
  };
  const auto vocos = [](const std::string& json) {
    return error_of<FormatError>([&] { return vocos_mel(json).options().hop_length; });
  };
  CHECK(hifigan("{}") == "mel: config: expected sampling_rate");
  CHECK(hifigan(R"({"n_fft": 64, "num_mels": 8, "sampling_rate": 8000, "hop_size": 65, "win_size": 64})") ==
        "mel: config: MelSpectrogram: expected hop_length in [1, n_fft=64], got 65");
  CHECK(hifigan(R"({"n_fft": 64, "num_mels": 8, "sampling_rate": 8000, "hop_size": 16, "win_size": 64, "fmax": "x"})")
            .find("fmax") != std::string::npos);
  CHECK(vocos("{}") == "mel: config: expected feature_extractor");
  CHECK(vocos(R"({"feature_extractor": {"class_path": "vocos.feature_extractors.EncodecFeatures"}})").find("EncodecFeatures") !=
        std::string::npos);
  CHECK(vocos(R"({"feature_extractor": {"init_args": {"padding": "valid"}}})").find("got valid") != std::string::npos);
}
