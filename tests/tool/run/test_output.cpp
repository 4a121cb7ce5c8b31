#include "run/output.hpp"

#include <doctest/doctest.h>

#include "io/npy.hpp"
#include "program/audio/audio_file.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using namespace polyphase::tool;

namespace {

Tensor stereo(std::int64_t first, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t channel = 0; channel < 2; ++channel)
    for (std::int64_t i = first; i < first + count; ++i) values.push_back(static_cast<float>(channel == 0 ? i : -i) / 64);
  return Tensor::from_vector(values, {1, 2, count}, Device::cpu());
}

}  // namespace

TEST_CASE("pieces become one WAV file, whose header has the length that came") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.wav");
  AudioOutput out(path, 8000, 2, {.format = program::SampleFormat::float32, .keeps_samples = true});
  out.write(stereo(0, 5));
  out.write(stereo(5, 11).to(DType::f64));
  CHECK(!std::filesystem::exists(path));
  out.commit();
  CHECK(out.frames() == 16);
  const program::Audio audio = program::read_audio(path);
  CHECK(audio.rate == 8000);
  REQUIRE(audio.channels.size() == 2);
  REQUIRE(audio.frames() == 16);
  for (std::size_t i = 0; i < 16; ++i) CHECK(audio.channels[1][i] == -static_cast<float>(i) / 64);
  CHECK(out.samples() == audio.channels[0]);
}

TEST_CASE("raw samples, and how many were clipped") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.pcm");
  AudioOutput out(path, 8000, 2, {.container = program::Container::raw});
  out.write(stereo(62, 4));
  out.commit();
  const std::string bytes = read_bytes(path);
  REQUIRE(bytes.size() == 16);
  CHECK(bytes.substr(0, 4) == std::string("\x00\x7c\x00\x84", 4));
  CHECK(out.clipped() == 3);  // 1, -65/64 and 65/64: -1 can be stored
}

TEST_CASE("an array of samples") {
  const TemporaryDirectory directory;
  AudioOutput out(directory.file("a.npy"), 0, 2, {});
  out.write(stereo(0, 3));
  out.write(stereo(3, 2));
  out.commit();
  CHECK(max_difference(load_npy(directory.file("a.npy")), stereo(0, 5).select(0, 0)) == 0);
}

TEST_CASE("without commit nothing is there, and a folder that is not there is named") {
  const TemporaryDirectory directory;
  {
    AudioOutput out(directory.file("a.wav"), 8000, 2, {});
    out.write(stereo(0, 3));
  }
  CHECK(directory.count() == 0);
  CHECK(error_of<FormatError>([&] { return AudioOutput(directory.file("no/a.wav"), 8000, 2, {}).frames(); }).find("no/a.wav") !=
        std::string::npos);
  AudioOutput out(directory.file("a.wav"), 8000, 2, {});
  CHECK(error_of<ShapeError>([&] { return out.write(Tensor::ones({2, 2, 3})), 0; }).find("(2, 2, 3)") != std::string::npos);
}
