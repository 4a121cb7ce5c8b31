#pragma once
// Sound as the network sees it: one channel at the model's rate, and its low-rate version.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/shared.hpp"

namespace training {

/// One channel of a file. Kept in memory where it was loaded, else read from the file window by window.
class Clip {
 public:
  /// `rate` is the model's; the file is resampled where it has another. Takes the header only.
  Clip(std::string path, const AudioInfo& info, int channel, int rate, int factor);

  /// "slt_13", or "song:1" for channel 1 of several.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Samples at the model's rate, a multiple of the factor: a rest at the end is left out.
  [[nodiscard]] std::int64_t length() const { return length_; }
  /// Bytes that load() would keep.
  [[nodiscard]] std::int64_t bytes() const;
  /// Decodes the whole channel and keeps it, at both rates; `audio` is the whole file.
  void load(const Audio& audio);

  /// Samples [start, start + count) at the model's rate; silence outside the clip. Throws FormatError.
  [[nodiscard]] std::vector<float> high(std::int64_t start, std::int64_t count) const;
  /// The same at the low rate: behind the anti-alias filter, every factor-th sample. The bits do not depend on the window.
  [[nodiscard]] std::vector<float> low(std::int64_t start, std::int64_t count) const;

 private:
  [[nodiscard]] std::vector<float> read(std::int64_t start, std::int64_t count) const;

  std::string path_;
  std::string name_;
  AudioInfo info_;
  std::size_t channel_;
  int rate_;
  int factor_;
  std::int64_t length_;
  std::vector<float> high_;
  std::vector<float> low_;
};

struct ClipOptions {
  int rate = 0;                    ///< of the model's output, in Hz; 0: the rate that most files have
  int factor = 4;                  ///< 1: there is no low rate, and low() is high()
  std::int64_t shortest = 1;       ///< clips with fewer samples are left out
  std::int64_t cache_bytes = 0;    ///< sound kept in memory; what is more is read window by window
  bool silence = true;             ///< false: clips without a sound are left out, as there is no score for them
  bool takes_lower_rates = false;  ///< files of a lower rate than the model's are resampled to it; else they are left out
};

/// The clips of many files, all at one rate.
struct ClipSet {
  int rate = 0;
  std::vector<Clip> clips;
  /// All clips together, in seconds.
  [[nodiscard]] double seconds() const;
};

/// The rate that most files have (the lower of two that tie). Unreadable files do not count; 0 if there are no others.
[[nodiscard]] int most_common_rate(const std::vector<std::string>& paths);

/// Makes clips of files. A file that cannot be used (unreadable, empty, too short, of a rate below the model's), and a silent
/// channel where `silence` is false, is left out and `warn` hears why; throws Error when none is left.
[[nodiscard]] ClipSet open_clips(const std::vector<std::string>& paths, const ClipOptions& options,
                                 const std::function<void(const std::string&)>& warn);

}  // namespace training
