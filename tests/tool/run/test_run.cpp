#include "run/run.hpp"

#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "io/npy.hpp"
#include "networks/hifigan.hpp"
#include "program/audio/audio_file.hpp"
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
