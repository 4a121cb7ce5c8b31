#pragma once
// The output of `polyphase run`, in pieces.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/audio/wav_writer.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::tool {

struct OutputOptions {
  program::SampleFormat format = program::SampleFormat::pcm16;
  program::Container container = program::Container::wav;
  bool keeps_samples = false;  ///< for samples()
};

/// Writes sound to a file, or to standard output for "-": WAV, raw PCM, or, if the name ends with .npy, an array of f32
/// (channels, samples). A file appears as a whole, at commit(), or not at all; standard output gets each piece immediately.
class AudioOutput {
 public:
  /// Throws FormatError with the system's reason, and if standard output is a terminal.
  AudioOutput(const std::string& path, std::int64_t rate, std::int64_t channels, const OutputOptions& options);
  /// Appends audio (1, channels, m) of any dtype and device. Throws FormatError.
  void write(const Tensor& audio);
  /// Throws FormatError.
  void commit();

  /// Samples of one channel written so far.
  [[nodiscard]] std::int64_t frames() const { return frames_; }
  /// Samples that were clipped to PCM's range.
  [[nodiscard]] std::int64_t clipped() const { return wav_ ? wav_->clipped() : 0; }
  /// The first channel, if the options keep it.
  [[nodiscard]] const std::vector<float>& samples() const { return samples_; }

 private:
  std::string path_;
  OutputOptions options_;
  std::optional<program::WavWriter> wav_;
  std::vector<Tensor> pieces_;  // of an array
  std::vector<float> samples_;
  std::int64_t frames_ = 0;
};

/// Writes an array, to standard output for "-". Throws FormatError.
void write_array(const std::string& path, const Tensor& tensor);

/// Whether the name ends with .npy.
[[nodiscard]] bool is_npy_name(const std::string& path);
/// Whether the name ends with .npy or .safetensors, so that sound becomes what the network takes and no sound.
[[nodiscard]] bool is_array_name(const std::string& path);

}  // namespace polyphase::tool
