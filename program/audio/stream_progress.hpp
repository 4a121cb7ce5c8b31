#pragma once
// Progress of a file through the network: a line on a terminal, nothing in a pipe.

#include <chrono>
#include <cstdint>

namespace polyphase::program {

/// Writes to standard error, since standard output may be the sound.
class StreamProgress {
 public:
  /// `frames` in total, at `rate` Hz.
  StreamProgress(std::int64_t frames, int rate);
  ~StreamProgress();
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;

  /// Shows "1:20 of 3:40 | 36 % | 41.3 times real time | 3 s left", at most 5 times a second.
  void show(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_;
  bool shown_ = false;
  double frames_;
  double rate_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_shown_ = start_;
};

}  // namespace polyphase::program
