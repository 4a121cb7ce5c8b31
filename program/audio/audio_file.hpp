#pragma once
// Reading sound, whatever the file: WAV by our own reader, everything else through libsndfile where it was built in.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace polyphase::program {

/// The length of sound that nobody knows yet.
inline constexpr std::int64_t kUnknownLength = -1;

/// What a file says of itself.
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
  /// Reads up to `frames` frames, channels interleaved, full scale = 1; returns how many there were, 0 at the end.
  /// Throws FormatError when the file ends before info().frames.
  virtual std::int64_t read(float* samples, std::int64_t frames) = 0;
  /// The next read starts at this frame. Throws FormatError unless 0 <= frame <= frames.
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

/// Opens WAV (PCM 8, 16, 24, 32 bit, float 32, 64 bit; RIFF and RF64), and with libsndfile every other WAV that it reads
/// (u-law, A-law, ADPCM, GSM, ...), FLAC and all it knows. A file that was streamed and does not say how long it is is read to
/// its end. Throws FormatError naming the file: missing, not sound, truncated, or of a kind that only libsndfile reads in a
/// build without.
/// `name` is what the texts call the file where that is not its path.
[[nodiscard]] std::unique_ptr<AudioReader> open_audio(const std::string& path, const std::string& name = "");

/// Reads `frames` frames from `start`, or all from there if negative. Throws FormatError, also on a sample that is not finite.
[[nodiscard]] Audio read_audio(AudioReader& reader, const std::string& path, std::int64_t start = 0, std::int64_t frames = -1);
[[nodiscard]] Audio read_audio(const std::string& path);

/// Whether files of every kind can be read, or WAV only.
[[nodiscard]] bool reads_flac();
/// Whether the name ends like a file that open_audio may be able to read in this build: .wav, .flac, ... in any case.
[[nodiscard]] bool has_audio_name(const std::string& path);

}  // namespace polyphase::program
