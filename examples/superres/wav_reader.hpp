#pragma once
// Our own WAV reader, so that the program works with WAV on a machine without libsndfile.

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "audio_file.hpp"

namespace superres {

/// RIFF and RF64 WAVE files with PCM of 8, 16, 24, 32 bit or float of 32, 64 bit; one that was streamed and leaves
/// its size open is read to its end.
class WavReader : public AudioReader {
 public:
  /// Whether the file opens like a WAV file.
  [[nodiscard]] static bool recognises(const std::string& path);

  /// Throws FormatError naming the file, the field and the numbers.
  explicit WavReader(const std::string& path);
  std::int64_t read(float* samples, std::int64_t frames) override;
  void seek(std::int64_t frame) override;

 private:
  void read_chunks();
  void read_format(std::uint64_t size);
  void locate_data(std::uint64_t size);
  void take(void* data, std::uint64_t bytes, const char* what);
  [[nodiscard]] float decode(const unsigned char* sample) const;

  std::string path_;
  std::ifstream file_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t position_ = 0;  // of the next chunk byte while the header is read
  std::uint64_t data_start_ = 0;
  std::optional<std::uint64_t> large_data_;  // size of the data chunk where RF64's ds64 chunk has it
  std::int64_t next_frame_ = 0;
  std::uint16_t tag_ = 0;
  int bits_ = 0;
  std::vector<unsigned char> bytes_;
};

}  // namespace superres
