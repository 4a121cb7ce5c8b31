#pragma once
// The reason in nlohmann_json's exceptions, for a user's message. Internal.

#include <nlohmann/json.hpp>

#include <string>

namespace polyphase {

/// The text without its first part, "[json.exception.out_of_range.403] ".
[[nodiscard]] inline std::string json_reason(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.starts_with("[json.exception") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace polyphase
