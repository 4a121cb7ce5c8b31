#include "program/audio/audio_file.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>

#include "program/audio/wav_writer.hpp"
#include "support/helpers.hpp"
#include "support/sound.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::program;
using namespace polyphase::testing;

namespace {

std::string open_error(const std::string& path) {
  return error_of<FormatError>([&] { return read_audio(path); });
}

double worst(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 1e9;
  double difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
  return difference;
}

}  // namespace

TEST_CASE("what is written is read again, to half a step of its format") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  const std::vector<std::vector<float>> channels{noise(1001, 1), noise(1001, 2), sine(440, 8000, 1001)};
  struct Case {
    SampleFormat format;
    double step;
  };
  for (const Case& one :
       {Case{SampleFormat::pcm16, 1.0 / 32768}, Case{SampleFormat::pcm24, 1.0 / 8388608}, Case{SampleFormat::float32, 0}}) {
    write_wav(path, {8000, channels}, one.format);
    const Audio audio = read_audio(path);
    CHECK(audio.rate == 8000);
    REQUIRE(audio.channels.size() == 3);
    for (std::size_t c = 0; c < 3; ++c) CHECK(worst(audio.channels[c], channels[c]) <= one.step / 2);
  }
}

TEST_CASE("a part of a file is what the whole has there") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  const std::vector<float> samples = noise(5000);
  write_sound(path, 16000, {samples});
  const auto reader = open_audio(path);
  const Audio part = read_audio(*reader, path, 1234, 777);
  CHECK(part.channels[0] == std::vector<float>(samples.begin() + 1234, samples.begin() + 1234 + 777));
}

TEST_CASE("samples past full scale are clipped and counted") {
  const TemporaryDirectory folder;
  WavWriter writer(folder.file("a.wav"), {8000, 1, 4}, SampleFormat::pcm16);
  const std::vector<float> samples{1.5F, -1.5F, -1.0F, 0.25F};
  writer.write(samples.data(), 4);
  writer.commit();
  CHECK(writer.clipped() == 2);
  CHECK(read_audio(folder.file("a.wav")).channels[0] == std::vector<float>{32767.0F / 32768, -1.0F, -1.0F, 0.25F});
}

TEST_CASE("a file appears whole or not at all") {
  const TemporaryDirectory folder;
  {
    WavWriter writer(folder.file("a.wav"), {8000, 1, 100}, SampleFormat::pcm16);
    writer.write(noise(40).data(), 40);
    CHECK(error_of<FormatError>([&] { return writer.write(noise(70).data(), 70), 0; }) ==
          folder.file("a.wav") + ": expected 100 frames in all, got 110");
    CHECK(error_of<FormatError>([&] { return writer.commit(), 0; }) == folder.file("a.wav") + ": expected 100 frames, got 40");
  }
  CHECK(folder.count() == 0);
}

TEST_CASE("eight-bit, 32-bit, extensible and odd chunks are read") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  // RIFF, an unknown chunk of odd length, 'fmt ' (extensible PCM of 8 bit), two samples.
  std::string bytes = std::string("RIFF\x5A\0\0\0WAVE", 12) + std::string("junk\x03\0\0\0abc\0", 12);
  bytes += std::string("fmt \x28\0\0\0", 8) + std::string("\xFE\xFF\x01\0\x40\x1F\0\0\x40\x1F\0\0\x01\0\x08\0", 16);
  bytes += std::string("\x16\0\x08\0\x04\0\0\0\x01\0", 10) + std::string(14, 'g') + std::string("data\x02\0\0\0\x80\xC0", 10);
  write_bytes(path, bytes);
  const Audio audio = read_audio(path);
  CHECK(audio.rate == 8000);
  CHECK(audio.channels[0] == std::vector<float>{0.0F, 0.5F});
}

TEST_CASE("a file that was streamed, its size left open, is read to its end") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  const std::vector<float> samples = noise(100);
  write_sound(path, 8000, {samples});
  const std::string whole = read_bytes(path);
  const std::string open_size(4, '\xFF');
  const std::string ds64 =
      std::string("ds64\x1C\0\0\0", 8) + std::string(8, '\0') + std::string("\x28\0\0\0\0\0\0\0", 8) + std::string(12, '\0');
  const std::string body = whole.substr(12, 28) + open_size + whole.substr(44) + "ab";  // plus half a frame
  write_bytes(path, "RIFF" + open_size + "WAVE" + body);
  CHECK(read_audio(path).channels[0] == samples);
  write_bytes(path, "RIFF" + open_size + "WAVE" + ds64 + body);  // only RF64 has that chunk
  CHECK(read_audio(path).channels[0] == samples);
  write_bytes(path, "RF64" + open_size + "WAVE" + ds64 + body);
  CHECK(read_audio(path).channels[0] == std::vector<float>(samples.begin(), samples.begin() + 10));
}

TEST_CASE("a size that a pipe's writer left open is recognised in all its forms") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  const std::vector<float> samples = noise(100);
  write_sound(path, 8000, {samples});
  const std::string whole = read_bytes(path);
  const auto with_sizes = [&](const std::string& riff, const std::string& data, const std::string& end) {
    write_bytes(path, "RIFF" + riff + whole.substr(8, 32) + data + whole.substr(44) + end);
  };
  const std::string largest(4, '\xFF');
  const std::string zero(4, '\0');
  const std::string header_only("\x24\0\0\0", 4);
  const std::string sox("\0\xF0\xFF\x7F", 4);
  const std::string arecord("\0\xFF\xFF\x7F", 4);
  for (const auto& [riff, data] : {std::pair(largest, largest), std::pair(zero, zero), std::pair(header_only, zero),
                                   std::pair(largest, zero), std::pair(sox, sox), std::pair(arecord, arecord)}) {
    with_sizes(riff, data, "a");  // plus a quarter of a sample
    CHECK(read_audio(path).channels[0] == samples);
  }
  // No samples, and a chunk after them: the file is complete.
  write_bytes(path, "RIFF" + std::string("\x30\0\0\0", 4) + whole.substr(8, 32) + zero + std::string("LIST\x04\0\0\0INFO", 12));
  CHECK(read_audio(path).frames() == 0);
  // A few bytes less than the header says: the file is truncated.
  with_sizes(header_only, std::string("\x94\x01\0\0", 4), "");
  CHECK(open_error(path) == path + ": expected 404 bytes of samples, the file has 400");
}

TEST_CASE("what only libsndfile decodes is named in a build without it") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  // One channel of 8000 Hz, eight-bit u-law: full scale of either sign, and the smallest steps.
  const std::string bytes =
      std::string("RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x07\0\x01\0\x40\x1F\0\0\x40\x1F\0\0\x01\0\x08\0", 36) +
      std::string("data\x04\0\0\0\x00\x80\xFF\xFE", 12);
  write_bytes(path, bytes);
  if (!reads_flac()) {
    CHECK(open_error(path) ==
          path +
              ": expected PCM of 8, 16, 24, 32 bit or float of 32, 64 bit in this build without libsndfile, "
              "got format 7 with 8 bit in blocks of 1 bytes for 1 channel");
    return;
  }
  const Audio audio = read_audio(path);
  CHECK(audio.rate == 8000);
  CHECK(audio.channels[0] == std::vector<float>{-32124.0F / 32768, 32124.0F / 32768, 0.0F, 8.0F / 32768});
  // Truncated: libsndfile would read the rest without an error.
  write_bytes(path, bytes.substr(0, bytes.size() - 1));
  CHECK(open_error(path) == path + ": expected 4 bytes of samples, the file has 3");
}

TEST_CASE("samples that do not fill their bytes are left-aligned") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  const auto file = [](char block_bytes, char bits, const std::string& samples) {
    return std::string("RIFF\x2C\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1F\0\0\0\x7D\0\0", 32) + block_bytes + '\0' + bits +
           '\0' + "data" + static_cast<char>(samples.size()) + std::string(3, '\0') + samples;
  };
  write_bytes(path, file(4, 24, std::string("\0\0\0\x40\0\0\0\xC0", 8)));
  CHECK(read_audio(path).channels[0] == std::vector<float>{0.5F, -0.5F});
  write_bytes(path, file(2, 12, std::string("\x10\0\0\x80", 4)));
  CHECK(read_audio(path).channels[0] == std::vector<float>{1.0F / 2048, -1.0F});
  write_bytes(path, file(4, 7, std::string("\0\0\0\x40", 4)));  // unsigned or left-aligned? The format does not say
  if (!reads_flac())
    CHECK(open_error(path).find("got format 1 with 7 bit in blocks of 4 bytes for 1 channel") != std::string::npos);
}

TEST_CASE("a short file takes little memory, however many channels it has") {
  const TemporaryDirectory folder;
  write_sound(folder.file("a.wav"), 8000, std::vector<std::vector<float>>(8000, {0.5F}));
  const auto peak_kilobytes = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = peak_kilobytes();
  CHECK(read_audio(folder.file("a.wav")).channels.size() == 8000);
  CHECK(peak_kilobytes() - before < 100000);
}

TEST_CASE("malformed files are refused in words") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  CHECK(open_error(path) == path + ": no such file");
  CHECK(open_error(folder.path()) == folder.path() + ": expected a sound file, got a folder");

  write_sound(path, 8000, {noise(100)});
  const std::string whole = read_bytes(path);
  write_bytes(path, whole.substr(0, whole.size() - 60));
  CHECK(open_error(path) == path + ": expected 400 bytes of samples, the file has 340");
  write_bytes(path, whole.substr(0, 30));
  CHECK(open_error(path) == path + ": the file ends inside the 'fmt ' chunk");
  write_bytes(path, whole.substr(0, 36));
  CHECK(open_error(path) == path + ": expected a 'data' chunk, the file ends after 36 bytes");

  std::string changed = whole;
  changed[22] = 0;
  write_bytes(path, changed);
  CHECK(open_error(path) == path + ": expected a rate and channels, got 8000 Hz and 0 channels");
  changed = whole;
  for (std::size_t i = 44; i < 48; ++i) changed[i] = '\xFF';  // a NaN
  write_bytes(path, changed);
  CHECK(open_error(path) == path + ": sample 0 of channel 0 is not a finite number");

  write_bytes(path, "not sound at all");
  CHECK(open_error(path).find(path + ": expected a ") == 0);
}

TEST_CASE("FLAC is read, or refused in one sentence") {
  const std::string path = std::string(SUPERRES_DATA) + "/heldout/slt_13.flac";
  if (!reads_flac()) {
    CHECK(open_error(path) ==
          path + ": expected a WAV file, got FLAC, which this build cannot read (built without libsndfile)");
    return;
  }
  const Audio audio = read_audio(path);
  CHECK(audio.rate == 16000);
  CHECK(audio.channels.size() == 1);
  CHECK(audio.frames() == 81120);
  const auto reader = open_audio(path);
  const Audio part = read_audio(*reader, path, 50000, 1000);
  CHECK(part.channels[0] == std::vector<float>(audio.channels[0].begin() + 50000, audio.channels[0].begin() + 51000));
}

TEST_CASE("names of sound files are known in any case") {
  CHECK(has_audio_name("x/y.WAV"));
  CHECK(has_audio_name("y.flac"));
  CHECK_FALSE(has_audio_name("wav"));
  CHECK_FALSE(has_audio_name("y.wav.txt"));
}

TEST_CASE("sound of unknown length is written with its final length") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.wav");
  const std::vector<float> samples = sine(440, 8000, 777);
  WavWriter writer(path, {8000, 1, kUnknownLength}, SampleFormat::float32);
  for (std::int64_t begin = 0; begin < 777; begin += 100)
    writer.write(samples.data() + begin, std::min<std::int64_t>(100, 777 - begin));
  writer.commit();
  CHECK(read_audio(path).channels.at(0) == samples);
  const std::string bytes = read_bytes(path);
  CHECK(bytes.substr(12, 4) == "JUNK");
  CHECK(static_cast<unsigned char>(bytes[4]) + 256U * static_cast<unsigned char>(bytes[5]) == bytes.size() - 8);
}

TEST_CASE("samples without a header") {
  const TemporaryDirectory directory;
  WavWriter writer(directory.file("a"), {8000, 1, kUnknownLength}, SampleFormat::pcm24, Container::raw);
  const float half = 0.5F;
  writer.write(&half, 1);
  writer.commit();
  CHECK(read_bytes(directory.file("a")) == std::string("\0\0\x40", 3));
}
