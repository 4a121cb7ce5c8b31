#pragma once
// Our own WAV reader, so that the programs read WAV on a machine without libsndfile.

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "program/audio/audio_file.hpp"
#include "program/audio/sndfile_reader.hpp"

namespace polyphase::program {

/// RIFF and RF64 WAVE files with PCM of 8, 16, 24, 32 bit or float of 32, 64 bit. A streamed file that leaves its size open is
/// read to its end. For other kinds the header is read, but no samples.
class WavReader : public AudioReader {
 public:
  /// Whether the file begins like a WAV file.
  [[nodiscard]] static bool recognises(const std::string& path);

  /// Throws FormatError with the file's `name`, the field and the numbers.
  WavReader(const std::string& path, const std::string& name);
  /// Whether read() supports the file's samples; otherwise info() is empty and read() must not be called.
  [[nodiscard]] bool decodes() const { return decodes_; }
  /// The size of the data if the header leaves it open, and the position of the size in the file.
  [[nodiscard]] const std::optional<SizePatch>& open_size() const { return open_size_; }
  /// The kind of samples, in words.
  [[nodiscard]] std::string format_name() const;
  std::int64_t read(float* samples, std::int64_t frames) override;
  void seek(std::int64_t frame) override;

 private:
  void read_chunks();
  void read_format(std::uint64_t size);
  void locate_data(std::uint64_t size);
  [[nodiscard]] bool is_open(std::uint64_t size) const;
  void take(void* data, std::uint64_t bytes, const char* what);
  [[nodiscard]] float decode(const unsigned char* sample) const;

  std::string path_;  // for error texts
  std::ifstream file_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t position_ = 0;  // position of the next chunk byte, while the header is read
  std::uint64_t data_start_ = 0;
  std::uint64_t riff_end_ = 0;               // end of the file according to the header
  std::optional<std::uint64_t> large_data_;  // size of the data chunk if RF64's ds64 chunk has it
  std::optional<SizePatch> open_size_;
  std::int64_t next_frame_ = 0;
  std::uint16_t tag_ = 0;
  int bits_ = 0;
  int block_bytes_ = 0;  // of a frame, or of a block of several frames
  bool decodes_ = false;
  std::vector<unsigned char> bytes_;
};

}  // namespace polyphase::program
