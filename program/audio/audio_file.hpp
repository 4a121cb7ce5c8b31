#pragma once
// Reads sound files: WAV by our own reader, everything else through libsndfile if the build has it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace polyphase::program {

/// The length of sound whose length is not known yet.
inline constexpr std::int64_t kUnknownLength = -1;

/// What a file's header says.
struct AudioInfo {
  int rate = 0;  ///< frames a second
  int channels = 0;
  std::int64_t frames = 0;  ///< samples of one channel
};

/// A sound file open for reading, block by block.
class AudioReader {
 public:
  virtual ~AudioReader() = default;
  [[nodiscard]] const AudioInfo& info() const { return info_; }
  /// Reads up to `frames` frames, channels interleaved, full scale = 1. Returns how many it read, 0 at the end.
  /// Throws FormatError if the file ends before info().frames.
  virtual std::int64_t read(float* samples, std::int64_t frames) = 0;
  /// Sets the frame at which the next read starts. Throws FormatError unless 0 <= frame <= frames.
  virtual void seek(std::int64_t frame) = 0;

 protected:
  AudioInfo info_;
};

/// A whole file, one vector per channel.
struct Audio {
  int rate = 0;
  std::vector<std::vector<float>> channels;
  [[nodiscard]] std::int64_t frames() const { return channels.empty() ? 0 : static_cast<std::int64_t>(channels[0].size()); }
};

/// Opens WAV (PCM 8, 16, 24, 32 bit, float 32, 64 bit; RIFF and RF64). With libsndfile also every other WAV that it reads
/// (u-law, A-law, ADPCM, GSM, ...), FLAC and all its other formats. A streamed file that does not give its length is read to
/// its end. Throws FormatError with the file's name: missing, not sound, truncated, or of a kind that only libsndfile reads in
/// a build without it.
/// build without.
/// `name` replaces the path in error texts.
[[nodiscard]] std::unique_ptr<AudioReader> open_audio(const std::string& path, const std::string& name = "");

/// Reads `frames` frames from `start`, or all from there if negative. Throws FormatError, also if a sample is not finite.
[[nodiscard]] Audio read_audio(AudioReader& reader, const std::string& path, std::int64_t start = 0, std::int64_t frames = -1);
[[nodiscard]] Audio read_audio(const std::string& path);

/// Whether all formats can be read (with libsndfile), or WAV only.
[[nodiscard]] bool reads_flac();
/// Whether the name ends like a sound file that this build may be able to read: .wav, .flac, ... in upper or lower case.
[[nodiscard]] bool has_audio_name(const std::string& path);

}  // namespace polyphase::program
