#include "training/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "training/shared.hpp"

namespace training {
namespace {

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::string progress_line(std::int64_t step, std::int64_t total, const std::vector<std::string>& parts, double seconds_left,
                          std::size_t width) {
  const std::string of = std::to_string(total);
  const std::string end = " | " + duration(seconds_left) + " left";
  std::string line = "step " + pad_left(std::to_string(step), of.size()) + "/" + of;
  for (const std::string& part : parts) {
    if (line.size() + 3 + part.size() + end.size() <= width) line += " | " + part;
  }
  return line + end;
}

Progress::Progress(std::int64_t first, std::int64_t total)
    : terminal_(isatty(STDOUT_FILENO) == 1),
      first_(first),
      total_(total),
      start_(Clock::now()),
      last_shown_(start_),
      last_step_(start_) {}

Progress::~Progress() {
  if (terminal_ && shown_) std::printf("\n");
}

double Progress::seconds() const { return seconds_between(start_, Clock::now()); }

void Progress::clear() {
  if (terminal_ && shown_) std::printf("\r\033[K");
  shown_ = false;
}

void Progress::say(const std::string& line) {
  clear();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Progress::show(std::int64_t step, std::vector<std::string> parts) {
  const auto now = Clock::now();
  const double latest = 1 / std::max(seconds_between(last_step_, now), 1e-9);
  rate_ = step - first_ <= 1 ? latest : rate_ + 0.05 * (latest - rate_);
  last_step_ = now;
  const bool due = seconds_between(last_shown_, now) >= (terminal_ ? 0.2 : kQuietSeconds);
  if (!due && step != total_) return;
  last_shown_ = now;
  parts.push_back(fixed(rate_, 1) + " steps/s");
  const std::string line = progress_line(step, total_, parts, static_cast<double>(total_ - step) / rate_, terminal_width() - 1);
  clear();
  std::printf(terminal_ ? "%s" : "%s\n", line.c_str());
  shown_ = terminal_;
  std::fflush(stdout);
}

}  // namespace training
