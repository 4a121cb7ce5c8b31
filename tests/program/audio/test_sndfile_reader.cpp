#include "program/audio/sndfile_reader.hpp"

#include <doctest/doctest.h>
#include <sndfile.h>

#include "program/audio/audio_file.hpp"
#include "support/helpers.hpp"
#include "support/sound.hpp"
#include "support/temporary_directory.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::program;
using namespace polyphase::testing;

namespace {

struct Kind {
  int format;
  int channels;
  double accuracy;  // root mean square of the error, relative to the signal
};

// WAV formats that libsndfile 1.2 writes and our reader does not decode. GSM allows one channel.
const Kind kKinds[] = {{SF_FORMAT_ULAW, 2, 0.03},       {SF_FORMAT_ALAW, 2, 0.03},  {SF_FORMAT_IMA_ADPCM, 2, 0.05},
                       {SF_FORMAT_MS_ADPCM, 2, 0.05},   {SF_FORMAT_GSM610, 1, 0.3}, {SF_FORMAT_G721_32, 1, 0.05},
                       {SF_FORMAT_NMS_ADPCM_32, 1, 0.1}};

constexpr std::int64_t kFrames = 5000;

std::vector<float> tone(int channel) { return sine(200.0 + 100 * channel, 8000, kFrames); }

void write(const std::string& path, const Kind& kind) {
  SF_INFO info{};
  info.samplerate = 8000;
  info.channels = kind.channels;
  info.format = SF_FORMAT_WAV | kind.format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file != nullptr);
  std::vector<float> frames(static_cast<std::size_t>(kFrames * kind.channels));
  for (int c = 0; c < kind.channels; ++c) {
    const std::vector<float> samples = tone(c);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      frames[i * static_cast<std::size_t>(kind.channels) + static_cast<std::size_t>(c)] = samples[i];
    }
  }
  CHECK(sf_writef_float(file, frames.data(), kFrames) == kFrames);
  CHECK(sf_close(file) == 0);
}

}  // namespace

TEST_CASE("every WAV that libsndfile knows is read, whole or a part of it") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.format);
    write(path, kind);
    const Audio audio = read_audio(path);
    CHECK(audio.rate == 8000);
    REQUIRE(audio.channels.size() == static_cast<std::size_t>(kind.channels));
    REQUIRE(audio.frames() >= kFrames);  // the last block is padded with silence
    CHECK(audio.frames() < kFrames + 600);
    for (int c = 0; c < kind.channels; ++c) {
      const std::vector<float>& samples = audio.channels[static_cast<std::size_t>(c)];
      std::vector<float> error = tone(c);
      for (std::size_t i = 0; i < error.size(); ++i) error[i] -= samples[i];
      CHECK(rms(error, 0, error.size()) <= kind.accuracy * rms(tone(c), 0, error.size()));
    }
    // Seeks forward and back, also in formats in which libsndfile cannot seek.
    const auto reader = open_audio(path);
    for (const std::int64_t start : {4000, 1000, 0, 1003}) {
      const Audio part = read_audio(*reader, path, start, 500);
      for (std::size_t c = 0; c < audio.channels.size(); ++c) {
        const auto begin = audio.channels[c].begin() + start;
        CHECK(part.channels[c] == std::vector<float>(begin, begin + 500));
      }
    }
    CHECK(error_of<FormatError>([&] { return reader->seek(audio.frames() + 1), 0; }) ==
          polyphase::concat(path, ": expected a frame in 0..", audio.frames(), ", got ", audio.frames() + 1));
  }
}

TEST_CASE("a size that a pipe's writer left open is that of all that follows") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.format);
    write(path, kind);
    const std::vector<std::vector<float>> closed = read_audio(path).channels;
    const std::string whole = read_bytes(path);
    const std::size_t data = whole.find("data") + 4;
    for (const std::string& size : {std::string(4, '\0'), std::string(4, '\xFF'), std::string("\0\xF0\xFF\x7F", 4)}) {
      std::string open = whole;
      open.replace(4, 4, size);
      open.replace(data, 4, size);
      write_bytes(path, open);
      CHECK(read_audio(path).channels == closed);
    }
  }
}

TEST_CASE("FLAC that does not say how long it is is read to its end") {
  const TemporaryDirectory folder;
  const std::string original = std::string(SUPERRES_DATA) + "/heldout/slt_13.flac";
  std::string bytes = read_bytes(original);
  bytes[21] = static_cast<char>(bytes[21] & 0xF0);  // 36 bits of STREAMINFO hold the number of samples
  for (std::size_t i = 22; i < 26; ++i) bytes[i] = 0;
  write_bytes(folder.file("a.flac"), bytes);
  const Audio audio = read_audio(folder.file("a.flac"));
  CHECK(audio.frames() == 81120);
  CHECK(audio.channels == read_audio(original).channels);
}

TEST_CASE("what libsndfile does not know is refused with its reason") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  write(path, kKinds[0]);
  std::string bytes = read_bytes(path);
  bytes[20] = 77;  // an unregistered format
  write_bytes(path, bytes);
  CHECK(error_of<FormatError>([&] { return read_audio(path); }).find(path + ": expected a sound file: ") == 0);
}
