#pragma once
// The network over a signal of any length, in memory that does not grow with it.

#include <cstdint>
#include <span>
#include <vector>

#include "model.hpp"

namespace superres {

/// Feeds a low-rate stream through the network chunk by chunk. Chunks overlap by as much as the network looks at, so that the
/// output is that of the whole signal at once. Channels are independent.
class Upsampler {
 public:
  /// `chunk` low-rate samples of a channel are computed at a time, fewer where there are many channels, so that memory does not
  /// grow with those either. The network must outlive it. Throws Error unless both are at least 1.
  Upsampler(UpsamplingNetwork& network, int channels, std::int64_t chunk = 16384);

  /// Takes low-rate frames, channels interleaved, and appends to `output` the frames that can be computed, interleaved.
  void process(std::span<const float> low, std::vector<float>& output);
  /// Ends the stream: appends the rest, so that `factor` frames have come for every one taken, and starts anew.
  void flush(std::vector<float>& output);

 private:
  void run(std::int64_t count, std::vector<float>& output);
  [[nodiscard]] std::int64_t held() const { return static_cast<std::int64_t>(history_.size()) / channels_; }

  UpsamplingNetwork& network_;
  std::int64_t channels_;
  std::int64_t chunk_;
  Context context_;
  std::vector<float> history_;  // frames still needed: at most context_.left that are done, then those that are not
  std::int64_t done_ = 0;       // frames at the front of history_ whose output is out
};

/// A whole signal of one channel.
[[nodiscard]] std::vector<float> upsample(UpsamplingNetwork& network, std::span<const float> low);

}  // namespace superres
