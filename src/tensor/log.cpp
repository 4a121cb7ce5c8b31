#include "tensor/log.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <utility>

namespace polyphase {
namespace {

const std::string& wanted() {
  static const std::string topics = [] {
    const char* value = std::getenv("POLYPHASE_LOG");
    return std::string(value != nullptr ? value : "");
  }();
  return topics;
}

struct Log {
  std::mutex mutex;
  LogCallback callback;
};

Log& the_log() {
  static Log log;
  return log;
}

}  // namespace

void set_log_callback(LogCallback callback) {
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  log.callback = std::move(callback);
}

bool log_topic(std::string_view topic) {
  const std::string_view topics = wanted();
  for (std::size_t begin = 0; begin < topics.size();) {
    const std::size_t end = std::min(topics.find(',', begin), topics.size());
    const std::string_view word = topics.substr(begin, end - begin);
    if (word == topic || word == "all") return true;
    begin = end + 1;
  }
  return false;
}

void log_message(LogLevel level, std::string_view text) {
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  if (log.callback) return log.callback(level, text);
  if (!wanted().empty()) std::clog << "polyphase: " << (level == LogLevel::warning ? "warning: " : "") << text << '\n';
}

}  // namespace polyphase
