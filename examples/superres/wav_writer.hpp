#pragma once
// Writing WAV, block by block; the file appears whole or not at all.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "audio_file.hpp"
#include "io/atomic_file.hpp"

namespace superres {

enum class SampleFormat : std::uint8_t { pcm16, pcm24, float32 };

/// A WAV file of a length known beforehand (RF64 where it passes 4 GiB). "-" is standard output, which gets the bytes at once.
class WavWriter {
 public:
  /// Throws FormatError with the system's reason.
  WavWriter(const std::string& path, const AudioInfo& info, SampleFormat format);
  /// Appends frames, channels interleaved, full scale = 1; PCM is rounded to nearest and clipped. Throws FormatError, also past
  /// info.frames.
  void write(const float* samples, std::int64_t frames);
  /// Makes the file appear. Throws FormatError unless exactly info.frames frames have come.
  void commit();
  /// Samples that had to be clipped so far.
  [[nodiscard]] std::int64_t clipped() const { return clipped_; }

 private:
  void write_header();
  void write_bytes(const void* data, std::size_t bytes);
  void encode(float value, unsigned char* out);

  std::string path_;
  AudioInfo info_;
  SampleFormat format_;
  std::int64_t written_ = 0;
  std::int64_t clipped_ = 0;
  std::vector<unsigned char> bytes_;
  std::optional<polyphase::AtomicFile> file_;  // none: standard output
};

/// Writes a whole file. Throws FormatError.
void write_wav(const std::string& path, const Audio& audio, SampleFormat format = SampleFormat::pcm16);

}  // namespace superres
