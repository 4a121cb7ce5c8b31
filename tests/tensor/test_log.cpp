#include "tensor/log.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace polyphase;

TEST_CASE("messages reach the callback, and no longer once it is taken away") {
  std::vector<std::string> heard;
  set_log_callback([&](LogLevel level, std::string_view text) {
    heard.push_back((level == LogLevel::warning ? "warning: " : "info: ") + std::string(text));
  });
  log_message(LogLevel::info, "one");
  log_message(LogLevel::warning, "two");
  set_log_callback({});
  log_message(LogLevel::info, "three");
  CHECK(heard == std::vector<std::string>{"info: one", "warning: two"});
}
