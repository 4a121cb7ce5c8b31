#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "text.hpp"

namespace superres {
namespace {

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

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

void Progress::show(std::int64_t step, const std::string& text) {
  const auto now = Clock::now();
  const double latest = 1 / std::max(seconds_between(last_step_, now), 1e-9);
  rate_ = step - first_ <= 1 ? latest : rate_ + 0.05 * (latest - rate_);
  last_step_ = now;
  const bool due = seconds_between(last_shown_, now) >= (terminal_ ? 0.2 : kQuietSeconds);
  if (!due && step != total_) return;
  last_shown_ = now;
  const std::string total = std::to_string(total_);
  std::string line = "step " + pad_left(std::to_string(step), total.size()) + "/" + total + " | " + text + " | " +
                     fixed(rate_, 1) + " steps/s | " + duration(static_cast<double>(total_ - step) / rate_) + " left";
  clear();
  if (terminal_) {
    const std::size_t width = terminal_width() - 1;
    if (line.size() > width) line.resize(width);
    std::printf("%s", line.c_str());
    shown_ = true;
  } else {
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
}

}  // namespace superres
