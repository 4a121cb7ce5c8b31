#include "program/audio/audio_file.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "program/audio/sndfile_reader.hpp"
#include "program/audio/wav_reader.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {
namespace {

std::string lower_extension(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

void check_is_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  require<FormatError>(std::filesystem::exists(status), path, ": no such file");
  require<FormatError>(!std::filesystem::is_directory(status), path, ": expected a sound file, got a folder");
}

}  // namespace

std::unique_ptr<AudioReader> open_audio(const std::string& path, const std::string& given_name) {
  const std::string& name = given_name.empty() ? path : given_name;
  check_is_file(path);
  std::unique_ptr<WavReader> wav;
  if (WavReader::recognises(path)) wav = std::make_unique<WavReader>(path, name);
  if (wav != nullptr && wav->decodes()) return wav;
  if (auto reader = open_with_sndfile(path, name, wav == nullptr ? std::nullopt : wav->open_size())) return reader;
  require<FormatError>(wav == nullptr, name,
                       ": expected PCM of 8, 16, 24, 32 bit or float of 32, 64 bit in this build without libsndfile, got ",
                       wav == nullptr ? "" : wav->format_name());
  throw FormatError(concat(name, ": expected a WAV file",
                           lower_extension(path) == ".flac"
                               ? ", got FLAC, which this build cannot read (built without libsndfile)"
                               : "; this build reads nothing else (built without libsndfile)"));
}

Audio read_audio(AudioReader& reader, const std::string& path, std::int64_t start, std::int64_t frames) {
  const AudioInfo& info = reader.info();
  if (frames < 0) frames = info.frames - start;
  reader.seek(start);
  Audio audio;
  audio.rate = info.rate;
  const auto channels = static_cast<std::size_t>(info.channels);
  audio.channels.assign(channels, {});
  // A header may promise more samples than the file has, so memory is allocated as samples come.
  constexpr std::int64_t kMostAhead = 1 << 20;
  for (auto& channel : audio.channels) channel.reserve(static_cast<std::size_t>(std::min(frames, kMostAhead)));
  const std::int64_t block_frames =
      std::min<std::int64_t>({16384, frames, std::max<std::int64_t>(kMostAhead / info.channels, 1)});
  std::vector<float> block(static_cast<std::size_t>(block_frames) * channels);
  for (std::int64_t done = 0; done < frames;) {
    const std::int64_t got = reader.read(block.data(), std::min(block_frames, frames - done));
    require<FormatError>(got > 0, path, ": expected ", start + frames, " frames, the file ends after ", start + done);
    for (std::int64_t i = 0; i < got; ++i) {
      for (std::size_t c = 0; c < channels; ++c) {
        const float value = block[static_cast<std::size_t>(i) * channels + c];
        require<FormatError>(std::isfinite(value), path, ": sample ", start + done + i, " of channel ", c,
                             " is not a finite number");
        audio.channels[c].push_back(value);
      }
    }
    done += got;
  }
  return audio;
}

Audio read_audio(const std::string& path) {
  const auto reader = open_audio(path);
  return read_audio(*reader, path);
}

bool has_audio_name(const std::string& path) {
  static constexpr std::array kNames{".wav", ".wave", ".flac", ".aif", ".aiff", ".ogg", ".opus", ".mp3", ".caf", ".w64", ".au"};
  const std::string extension = lower_extension(path);
  return std::find(kNames.begin(), kNames.end(), extension) != kNames.end();
}

}  // namespace polyphase::program
