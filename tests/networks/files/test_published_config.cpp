#include "networks/files/published_config.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Json = nlohmann::json;

Json config_of(const std::string& network, const std::string& given, const WeightsFile& weights = {}) {
  return Json::parse(published_config(network, "/nowhere/f", weights, given));
}

}  // namespace

TEST_CASE("what is given counts before the file's metadata, and that before config.json") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("f");
  write_bytes(directory.file("config.json"), R"({"from": "beside"})");
  WeightsFile weights;
  CHECK(published_config("vocos", path, weights, "") == R"({"from":"beside"})");
  weights.metadata["plain"] = R"({"metadata": {"kwargs": {"from": "DAC's entry"}}})";
  CHECK(published_config("dac", path, weights, "") == R"({"from":"DAC's entry"})");
  weights.metadata["config"] = R"({"from": "metadata"})";
  CHECK(published_config("dac", path, weights, "") == R"({"from":"metadata"})");
  CHECK(published_config("dac", path, weights, R"({"from": "option"})") == R"({"from":"option"})");
}

TEST_CASE("networks whose files have no configuration: Piper's voices and EnCodec") {
  WeightsFile piper{.tensors = {{"dec.conv_pre.weight", {}}, {"dec.resblocks.0.convs.0.weight", {}}}};
  Json json = config_of("hifigan", "", piper);
  CHECK(json["resblock"] == "2");
  CHECK(json["upsample_rates"] == Json{8, 8, 4});
  CHECK(json["final_bias"] == false);
  piper.tensors[1].first = "dec.resblocks.0.convs1.0.weight";
  CHECK(config_of("hifigan", "", piper)["upsample_initial_channel"] == 512);
  CHECK(config_of("encodec", "")["sample_rate"] == 24000);
  const WeightsFile norms{.tensors = {{"decoder.model.0.conv.norm.weight", {}}}};
  CHECK(config_of("encodec", "", norms)["channels"] == 2);
  CHECK(error_of<FormatError>([&] {
          return config_of("vocos", "");
        }).find("/nowhere/f: expected the network's configuration") != std::string::npos);
}

TEST_CASE("transformers' and diffusers' configurations in the original's form") {
  Json json = config_of(
      "dac",
      R"({"encoder_hidden_size": 64, "downsampling_ratios": [2, 4, 8, 8], "decoder_hidden_size": 1536, "hidden_size": 1024,
    "upsampling_ratios": [8, 8, 4, 2], "n_codebooks": 9, "codebook_size": 1024, "codebook_dim": 8, "sampling_rate": 44100, "model_type": "dac"})");
  CHECK(
      json ==
      Json::parse(
          R"({"encoder_dim": 64, "encoder_rates": [2, 4, 8, 8], "decoder_dim": 1536, "latent_dim": 1024, "decoder_rates": [8, 8, 4, 2],
    "n_codebooks": 9, "codebook_size": 1024, "codebook_dim": 8, "sample_rate": 44100})"));

  json = config_of(
      "hifigan", R"({"model_in_dim": 80, "upsample_rates": [4, 4, 4, 4], "leaky_relu_slope": 0.1, "normalize_before": true})");
  CHECK(json["num_mels"] == 80);
  CHECK(json["resblock"] == "1");
  CHECK(json["normalize_before"] == true);
  CHECK(error_of<FormatError>([&] {
          return config_of("hifigan", R"({"model_in_dim": 80, "leaky_relu_slope": 0.2})");
        }).find("got 0.2") != std::string::npos);

  json = config_of("encodec",
                   R"({"target_bandwidths": [1.5, 24.0], "sampling_rate": 24000, "audio_channels": 1, "use_causal_conv": true,
    "norm_type": "weight_norm", "normalize": false, "chunk_length_s": null, "hidden_size": 128, "num_filters": 32, "upsampling_ratios": [8, 5, 4, 2],
    "codebook_size": 1024, "codebook_dim": null})");
  CHECK(json["quantizer"] == Json::parse(R"({"dimension": 128, "n_q": 32, "bins": 1024})"));
  CHECK(json["seanet"]["ratios"] == Json{8, 5, 4, 2});
  CHECK(json["model_norm"] == "weight_norm");
  CHECK(json["seanet"]["true_skip"] == false);

  json = config_of(
      "mimi",
      R"({"sampling_rate": 24000, "num_filters": 64, "hidden_size": 512, "upsampling_ratios": [8, 6, 5, 4], "codebook_dim": 256,
    "num_quantizers": 32, "codebook_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 8, "intermediate_size": 2048, "sliding_window": 250,
    "use_conv_shortcut": false})");
  CHECK(json["transformer"]["context"] == 250);
  CHECK(json["seanet"]["true_skip"] == true);
  CHECK(json["quantizer"]["bins"] == 2048);

  json = config_of(
      "oobleck",
      R"({"audio_channels": 2, "channel_multiples": [1, 2, 4, 8, 16], "decoder_channels": 128, "decoder_input_channels": 64,
    "downsampling_ratios": [2, 4, 4, 8, 8], "sampling_rate": 44100})");
  CHECK(json["model"]["decoder"]["config"]["strides"] == Json{2, 4, 4, 8, 8});
  CHECK(error_of<FormatError>([&] {
          return config_of("oobleck", R"({"decoder_channels": 128})");
        }).starts_with("config: /nowhere/f: ") == true);
}
