#pragma once
// Writing WAV, block by block; the file appears whole or not at all.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/atomic_file.hpp"
#include "program/audio/audio_file.hpp"

namespace polyphase::program {

enum class SampleFormat : std::uint8_t { pcm16, pcm24, float32 };
enum class Container : std::uint8_t {
  wav,
  raw  ///< samples without a header, little endian
};

/// A WAV file (RF64 where it passes 4 GiB). "-" is standard output, which gets the bytes at once.
class WavWriter {
 public:
  /// The length may be kUnknownLength: a file's header is then written last, and standard output gets a header that leaves the
  /// size open. Throws FormatError with the system's reason.
  WavWriter(const std::string& path, const AudioInfo& info, SampleFormat format, Container container = Container::wav);
  /// Appends frames, channels interleaved, full scale = 1; PCM is rounded to nearest and clipped. Throws FormatError, also past
  /// info.frames.
  void write(const float* samples, std::int64_t frames);
  /// Makes the file appear. Throws FormatError unless exactly info.frames frames have come, where that is known.
  void commit();
  /// Samples that had to be clipped so far.
  [[nodiscard]] std::int64_t clipped() const { return clipped_; }

 private:
  [[nodiscard]] bool is_open() const { return info_.frames == kUnknownLength; }
  /// Of so many frames.
  [[nodiscard]] std::vector<unsigned char> header(std::int64_t frames) const;
  void write_bytes(const void* data, std::size_t bytes);
  void encode(float value, unsigned char* out);

  std::string path_;
  AudioInfo info_;
  SampleFormat format_;
  Container container_;
  std::int64_t written_ = 0;
  std::int64_t clipped_ = 0;
  std::vector<unsigned char> bytes_;
  std::optional<AtomicFile> file_;  // none: standard output
};

/// Writes a whole file. Throws FormatError.
void write_wav(const std::string& path, const Audio& audio, SampleFormat format = SampleFormat::pcm16);

}  // namespace polyphase::program
