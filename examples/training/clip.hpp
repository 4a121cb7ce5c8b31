#pragma once
// Sound for the network: one channel at the model's rate, and its low-rate version.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/shared.hpp"

namespace training {

/// One channel of a file. Loaded clips are in memory; others are read from the file window by window.
class Clip {
 public:
  /// `rate` is the model's; a file with another rate is resampled. Reads the header only.
  Clip(std::string path, const AudioInfo& info, int channel, int rate, int factor);

  /// "slt_13", or "song:1" for channel 1 of several.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Samples at the model's rate, a multiple of the factor: a remainder at the end is dropped.
  [[nodiscard]] std::int64_t length() const { return length_; }
  /// The memory that load() would use.
  [[nodiscard]] std::int64_t bytes() const;
  /// Decodes the whole channel and keeps it, at both rates; `audio` is the whole file.
  void load(const Audio& audio);

  /// Samples [start, start + count) at the model's rate; silence outside the clip. Throws FormatError.
  [[nodiscard]] std::vector<float> high(std::int64_t start, std::int64_t count) const;
  /// The same at the low rate: every factor-th sample after the anti-alias filter. The bits do not depend on the window.
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
  std::int64_t shortest = 1;       ///< clips with fewer samples are dropped
  std::int64_t cache_bytes = 0;    ///< limit of sound kept in memory; other clips are read window by window
  bool silence = true;             ///< false: silent clips are dropped, as there is no score for them
  bool takes_lower_rates = false;  ///< files of a lower rate than the model's are resampled to it, not dropped
};

/// The clips of many files, all at one rate.
struct ClipSet {
  int rate = 0;
  std::vector<Clip> clips;
  /// Length of all clips together, in seconds.
  [[nodiscard]] double seconds() const;
};

/// The rate that most files have (of two equally frequent ones the lower). Unreadable files do not count; 0 if there are no
/// others.
[[nodiscard]] int most_common_rate(const std::vector<std::string>& paths);

/// Makes clips of files. Drops a file that cannot be used (unreadable, empty, too short, of a rate below the model's), and a
/// silent channel if `silence` is false, and calls `warn` with the reason. Throws Error when none is left.
[[nodiscard]] ClipSet open_clips(const std::vector<std::string>& paths, const ClipOptions& options,
                                 const std::function<void(const std::string&)>& warn);

}  // namespace training
