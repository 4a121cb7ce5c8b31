#include "program/audio/stream_progress.hpp"

#include <unistd.h>

#include <cstdio>

#include "program/text.hpp"

namespace polyphase::program {

StreamProgress::StreamProgress(std::int64_t frames, int rate)
    : terminal_(isatty(STDERR_FILENO) == 1), frames_(static_cast<double>(frames)), rate_(rate) {}

StreamProgress::~StreamProgress() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

void StreamProgress::show(std::int64_t done) {
  const auto now = Clock::now();
  if (!terminal_ || done == 0 || std::chrono::duration<double>(now - last_shown_).count() < 0.2) return;
  last_shown_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const auto frames = static_cast<double>(done);
  std::fprintf(stderr, "\r\033[K%s of %s | %s %% | %s times real time | %s left", duration(frames / rate_).c_str(),
               duration(frames_ / rate_).c_str(), fixed(100 * frames / frames_, 0).c_str(),
               fixed(frames / rate_ / elapsed, 1).c_str(), duration(elapsed * (frames_ - frames) / frames).c_str());
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace polyphase::program
