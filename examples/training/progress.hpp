#pragma once
// One line with the progress of a long job: rewritten in place on a terminal, a new line from time to time in a pipe.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace training {

/// "step  12/1600 | loss -2.632 | SNR 16.5 dB | 1:59 left": of `parts`, the most important first, those that fit.
[[nodiscard]] std::string progress_line(std::int64_t step, std::int64_t total, const std::vector<std::string>& parts,
                                        double seconds_left, std::size_t width);

class Progress {
 public:
  /// Counts from `first` (nonzero for a resumed run) to `total`.
  Progress(std::int64_t first, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_total(std::int64_t total) { total_ = total; }
  /// Shows a progress_line() of `parts` and the rate, as wide as the terminal (in a pipe 80 columns), at most 5 times a second
  /// on a terminal, every kQuietSeconds in a pipe, and at the end.
  void show(std::int64_t step, std::vector<std::string> parts);
  /// Prints a line of its own above the progress line.
  void say(const std::string& line);
  [[nodiscard]] double seconds() const;
  [[nodiscard]] double rate() const { return rate_; }

 private:
  using Clock = std::chrono::steady_clock;
  void clear();

  bool terminal_;
  bool shown_ = false;
  std::int64_t first_;
  std::int64_t total_;
  double rate_ = 0;  // steps a second; recent ones have the largest weight
  Clock::time_point start_;
  Clock::time_point last_shown_;
  Clock::time_point last_step_;
};

inline constexpr double kQuietSeconds = 15;

}  // namespace training
