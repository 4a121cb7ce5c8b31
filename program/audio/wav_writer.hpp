#pragma once
// Writes WAV block by block. A file appears as a whole or not at all.

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
  raw  ///< samples without a header, little-endian
};

/// A WAV file (RF64 above 4 GiB). "-" is standard output, which gets the bytes immediately.
class WavWriter {
 public:
  /// The length may be kUnknownLength: then a file's header is written last, and standard output gets a header that leaves the
  /// size open. Throws FormatError with the system's reason.
  WavWriter(const std::string& path, const AudioInfo& info, SampleFormat format, Container container = Container::wav);
  /// Appends frames, channels interleaved, full scale = 1; PCM is rounded to nearest and clipped. Throws FormatError, also for
  /// more than info.frames frames.
  void write(const float* samples, std::int64_t frames);
  /// Makes the file appear. Throws FormatError unless exactly info.frames frames were written, if that is known.
  void commit();
  /// Samples clipped so far.
  [[nodiscard]] std::int64_t clipped() const { return clipped_; }

 private:
  [[nodiscard]] bool is_open() const { return info_.frames == kUnknownLength; }
  /// The header for a file of this many frames.
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
