#include "run/run.hpp"

#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "networks/encodec.hpp"
#include "networks/hifigan.hpp"
#include "networks/registry.hpp"
#include "program/audio/audio_file.hpp"
#include "support/codes.hpp"
#include "support/helpers.hpp"
#include "support/sound.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using namespace polyphase::tool;

namespace {

constexpr const char* kConfig = R"({"resblock": "1", "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4],
  "upsample_initial_channel": 8, "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1, 3], [1]], "num_mels": 6, "sampling_rate": 8000,
  "n_fft": 64, "hop_size": 8, "win_size": 64, "fmin": 0, "fmax": 4000})";

/// A folder with a model and a mel.
struct Place {
  TemporaryDirectory directory{};
  Tensor mel = random_f64({6, 50}).to(DType::f32);
  std::vector<std::string> said{};

  Place() {
    manual_seed(12);
    Model model{"hifigan", kConfig, std::make_unique<HifiGan>(HifiGanConfig::parse(kConfig))};
    save_model(file("model"), model);
    save_npy(file("mel.npy"), mel);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return directory.file(name); }
  [[nodiscard]] RunOptions options(const std::string& output) const {
    return {.model = file("model"), .inputs = {file("mel.npy")}, .output = file(output)};
  }
  void operator()(const RunOptions& options) {
    run(options, [&](const std::string& sentence) { said.push_back(sentence); });
  }
  std::string error(const RunOptions& options) {
    return error_of<Error>([&] { return (*this)(options), 0; });
  }
};

}  // namespace

TEST_CASE("in pieces, streamed or within a limit the samples are those of the whole") {
  Place place;
  place(place.options("whole.npy"));
  const Tensor whole = load_npy(place.file("whole.npy"));
  CHECK(whole.shape() == Shape{1, 400});
  Model model = load_model(place.file("model"));
  const NoGradGuard no_grad;
  CHECK(max_difference((*model.net)(place.mel.unsqueeze(0)).select(0, 0), whole) == 0);
  RunOptions options = place.options("pieces.npy");
  options.chunk = 7;
  place(options);
  CHECK(max_difference(load_npy(options.output), whole) == 0);
  options.chunk = 0;
  options.stream = 3;
  place(options);
  CHECK(max_difference(load_npy(options.output), whole) == 0);
  CHECK(place.said.back().find("latency ") != std::string::npos);
  options.stream = 0;
  options.memory = 40000000;
  place(options);
  CHECK(max_difference(load_npy(options.output), whole) == 0);
}

TEST_CASE("a WAV file, its spectrogram, and what is said of it") {
  Place place;
  RunOptions options = place.options("a.wav");
  options.picture = place.file("a.png");
  place(options);
  const program::Audio audio = program::read_audio(options.output);
  CHECK(audio.rate == 8000);
  CHECK(audio.frames() == 400);
  CHECK(read_bytes(options.picture).substr(1, 3) == "PNG");
  REQUIRE(!place.said.empty());
  CHECK(place.said.back().find("a.wav: 0.05 s at 8000 Hz, 1 channel, in ") != std::string::npos);
  CHECK(place.said.back().ends_with(" times real time"));
}

TEST_CASE("sound goes through the network's mel front end, and the mel may be had") {
  Place place;
  program::write_wav(place.file("sound.wav"), {8000, {noise(800)}}, program::SampleFormat::float32);
  RunOptions options = place.options("mel_of_sound.npy");
  options.inputs = {place.file("sound.wav")};
  place(options);
  CHECK(load_npy(options.output).shape() == Shape{6, 100});
  options.output = place.file("again.wav");
  place(options);
  const program::Audio again = program::read_audio(options.output);
  CHECK(again.frames() == 800);
  options.inputs = {place.file("mel_of_sound.npy")};
  options.output = place.file("from_mel.wav");
  place(options);
  CHECK(program::read_audio(options.output).channels == again.channels);
}

TEST_CASE("every network runs from its file, and a stream gives the same samples") {
  struct Case {
    const char *network, *config;
    std::int64_t codebook_size = 0;
  };
  constexpr Case kCases[] = {
      {"bigvgan", R"({"resblock": "1", "activation": "snakebeta", "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4],
        "upsample_initial_channel": 8, "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]], "num_mels": 6,
        "sampling_rate": 8000})"},
      {"dac", R"({"encoder_dim": 2, "encoder_rates": [2, 4], "decoder_dim": 16, "decoder_rates": [4, 2], "n_codebooks": 3,
        "codebook_size": 16, "codebook_dim": 2, "sample_rate": 8000})",
       16},
      {"encodec", R"({"sample_rate": 8000, "seanet": {"dimension": 6, "n_filters": 2, "ratios": [4, 2], "compress": 2},
        "quantizer": {"n_q": 3, "bins": 16}})",
       16},
      {"hifigan", kConfig},
      {"mimi", R"({"sample_rate": 8000, "channels": 1, "frame_rate": 500,
        "seanet": {"dimension": 8, "causal": true, "n_filters": 2, "n_residual_layers": 1, "ratios": [4, 2], "last_kernel_size": 3,
          "pad_mode": "constant", "true_skip": true},
        "quantizer": {"dimension": 4, "n_q": 3, "bins": 16, "output_dimension": 8},
        "transformer": {"d_model": 8, "num_heads": 2, "num_layers": 2, "causal": true, "layer_scale": 0.5, "context": 5,
          "conv_layout": true, "positional_embedding": "rope", "dim_feedforward": 12, "input_dimension": 8,
          "output_dimensions": [8]}})",
       16},
      {"oobleck", R"({"sample_rate": 8000, "model": {"decoder": {"type": "oobleck", "config": {"out_channels": 2, "channels": 4,
        "c_mults": [1, 2], "strides": [2, 4], "latent_dim": 3}}}})"},
      {"qwen3_12hz", R"({"codebook_size": 16, "codebook_dim": 8, "num_quantizers": 3, "latent_dim": 6, "hidden_size": 8,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 5,
        "intermediate_size": 10, "upsampling_ratios": [2], "upsample_rates": [3, 2], "decoder_dim": 8})",
       16},
      {"snac", R"({"sampling_rate": 8000, "encoder_dim": 2, "encoder_rates": [2, 2], "decoder_dim": 8, "decoder_rates": [2, 2],
        "codebook_size": 16, "codebook_dim": 2, "vq_strides": [4, 2, 1], "attn_window_size": null})",
       16},
      {"vocos", R"({"feature_extractor": {"class_path": "vocos.feature_extractors.MelSpectrogramFeatures",
        "init_args": {"sample_rate": 8000, "n_fft": 64, "hop_length": 16, "n_mels": 6}},
        "backbone": {"class_path": "vocos.models.VocosBackbone", "init_args": {"input_channels": 6, "dim": 8, "intermediate_dim": 12, "num_layers": 2}},
        "head": {"class_path": "vocos.heads.ISTFTHead", "init_args": {"dim": 8, "n_fft": 64, "hop_length": 16, "padding": "center"}}})"},
  };
  CHECK(std::size(kCases) == network_entries().size());
  Place place;
  for (const Case& what : kCases) {
    CAPTURE(what.network);
    manual_seed(3);
    Model model{what.network, what.config, make_network(what.network, what.config)};
    save_model(place.file("model"), model);
    const Shape shape{model.net->format().rows, 24};
    save_npy(place.file("in.npy"),
             what.codebook_size > 0 ? some_codes(shape, what.codebook_size) : random_f64(shape).to(DType::f32));
    RunOptions options = place.options("whole.npy");
    options.inputs = {place.file("in.npy")};
    place(options);
    const Tensor whole = load_npy(options.output);
    CHECK(whole.size(0) == model.net->format().audio_channels);
    options.output = place.file("pieces.npy");
    options.stream = 3;
    place(options);
    CHECK(max_difference(load_npy(options.output), whole) == 0);
    options.stream = 0;
    options.output = place.file("a.wav");
    place(options);
    CHECK(program::read_audio(options.output).frames() == whole.size(1));
  }
}

TEST_CASE("EnCodec in segments: sound to codes and their volumes, and back") {
  constexpr const char* kSegments = R"({"sample_rate": 400, "channels": 2, "segment": 1.0, "overlap": 0.1, "causal": false,
      "audio_normalize": true, "model_norm": "time_group_norm",
      "seanet": {"dimension": 6, "n_filters": 2, "ratios": [4, 2], "compress": 2}, "quantizer": {"n_q": 3, "bins": 16}})";
  Place place;
  const EncodecConfig config = EncodecConfig::parse(kSegments);
  Encodec decoder(config);
  NamedTensors weights = decoder.state_dict();
  EncodecEncoder encoder(config);
  for (const auto& [name, tensor] : encoder.state_dict())
    if (name.starts_with("encoder.")) weights.emplace_back(name, tensor);
  save_safetensors(place.file("model"), weights, {{"network", "encodec"}, {"config", kSegments}});
  program::write_wav(place.file("sound.wav"), {400, {noise(960), noise(960)}}, program::SampleFormat::float32);
  const auto made = [&](const char* from, const char* to) {
    RunOptions options = place.options(to);
    options.inputs = {place.file(from)};
    options.out.format = program::SampleFormat::float32;
    place(options);
    return options.output;
  };
  const auto sound = [&](const char* from) { return program::read_audio(made(from, "out.wav")).channels; };
  const auto direct = sound("sound.wav");
  CHECK(direct.size() == 2);
  CHECK(direct.front().size() == 960);
  made("sound.wav", "codes.safetensors");
  CHECK(sound("codes.safetensors") == direct);
  made("sound.wav", "codes.npy");
  CHECK(place.said.back().find("the volume of its segments is left out") != std::string::npos);
  CHECK(load_npy(place.file("codes.npy")).shape() == Shape{3, 130});
  CHECK(sound("codes.npy") != direct);
  RunOptions options = place.options("again.safetensors");
  options.inputs = {place.file("codes.npy")};
  CHECK(place.error(options).find("again.safetensors: expected a WAV file or .npy for the samples") != std::string::npos);
  save_safetensors(place.file("bad.safetensors"),
                   {{"codes", load_npy(place.file("codes.npy"))}, {"scales", Tensor::ones({1, 3})}});
  options = place.options("out.wav");
  options.inputs = {place.file("bad.safetensors")};
  CHECK(place.error(options).find("bad.safetensors: expected scales (segments) of floating-point numbers, got (1, 3)") !=
        std::string::npos);
}

TEST_CASE("several inputs go into a folder under their own names") {
  Place place;
  save_npy(place.file("second.npy"), place.mel.narrow(1, 0, 5));
  RunOptions options = place.options("folder/");
  options.inputs.push_back(place.file("second.npy"));
  place(options);
  CHECK(program::read_audio(place.file("folder/mel.wav")).frames() == 400);
  CHECK(program::read_audio(place.file("folder/second.wav")).frames() == 40);
  options.output = place.file("single.wav");
  CHECK(place.error(options).find("single.wav: expected a folder for 2 inputs") != std::string::npos);
  options.output = place.file("folder");
  options.inputs[1] = options.inputs[0];
  CHECK(place.error(options).find("two inputs have this output") != std::string::npos);
}

TEST_CASE("other number formats are close to f32") {
  Place place;
  place(place.options("f32.npy"));
  RunOptions options = place.options("f64.npy");
  options.dtype = DType::f64;
  place(options);
  CHECK(max_difference(load_npy(place.file("f32.npy")), load_npy(options.output)) < kFloatSum);
}

TEST_CASE("what cannot be done is one sentence, and no output appears") {
  Place place;
  RunOptions options = place.options("a.wav");
  options.codebooks = 2;
  CHECK(place.error(options).find("--codebooks: expected a network that takes codes") != std::string::npos);
  options = place.options("mel.npy");
  CHECK(place.error(options).find("expected an output of its own") != std::string::npos);
  options = place.options("a.wav");
  options.memory = 10;
  CHECK(place.error(options).find("mel.npy: decode: expected at least ") != std::string::npos);
  options.memory = 0;
  options.inputs = {place.file("missing.npy")};
  CHECK(place.error(options).find("missing.npy") != std::string::npos);
  save_npy(place.file("wide.npy"), Tensor::ones({7, 5}));
  options.inputs = {place.file("wide.npy")};
  CHECK(place.error(options).find("wide.npy: expected mel (6, frames)") != std::string::npos);
  options.model = place.file("mel.npy");
  CHECK(place.error(options).find("mel.npy: expected the tensors of one of ") != std::string::npos);
  CHECK(!std::filesystem::exists(place.file("a.wav")));
}

TEST_CASE("sizes in bytes") {
  CHECK(parse_bytes("12345") == 12345);
  CHECK(parse_bytes("1.5GB") == 1500000000);
  CHECK(parse_bytes("16GiB") == std::size_t{16} << 30U);
  CHECK(parse_bytes("64KiB") == 65536);
  for (const char* text : {"", "GB", "-1", "0", "1XB", "1e30", "nan"})
    CHECK(error_of<Error>([&] { return parse_bytes(text); }) == concat("expected a size as 800MB or 16GiB, got ", text));
}
