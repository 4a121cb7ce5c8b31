#pragma once
// Runs the network over a signal of any length, in constant memory.

#include <cstdint>
#include <span>
#include <vector>

#include "model.hpp"

namespace superres {

/// Feeds a low-rate stream through the network chunk by chunk. Chunks overlap by the network's context, so that the output is
/// that of the whole signal. Channels are independent.
class Upsampler {
 public:
  /// Computes `chunk` low-rate samples of a channel at a time, fewer for many channels, so that memory does not grow with those
  /// either. The network must outlive the object. Throws Error unless both numbers are at least 1.
  Upsampler(UpsamplingNetwork& network, int channels, std::int64_t chunk = 16384);

  /// Takes low-rate frames, channels interleaved, and appends to `output` the frames that can be computed, interleaved.
  void process(std::span<const float> low, std::vector<float>& output);
  /// Ends the stream: appends the remaining frames, `factor` for every input frame in total, and resets the object.
  void flush(std::vector<float>& output);

 private:
  void run(std::int64_t count, std::vector<float>& output);
  [[nodiscard]] std::int64_t held() const { return static_cast<std::int64_t>(history_.size()) / channels_; }

  UpsamplingNetwork& network_;
  std::int64_t channels_;
  std::int64_t chunk_;
  Context context_;
  std::vector<float> history_;  // frames that are still needed: up to context_.left computed ones, then the others
  std::int64_t done_ = 0;       // frames at the front of history_ that are computed
};

/// A whole signal of one channel.
[[nodiscard]] std::vector<float> upsample(UpsamplingNetwork& network, std::span<const float> low);

}  // namespace superres
