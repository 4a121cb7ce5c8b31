#pragma once
// Numbers as texts of a checkpoint, and back with the same bits.

#include <charconv>
#include <map>
#include <string>

#include "tensor/error.hpp"

namespace training {

/// The shortest text that reads back as the same number.
template <class T>
[[nodiscard]] std::string text_of(T value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

/// The text of this name. Throws Error if it is missing.
[[nodiscard]] inline const std::string& text_at(const std::map<std::string, std::string>& texts, const char* name) {
  const auto entry = texts.find(name);
  polyphase::require<polyphase::Error>(entry != texts.end(), "train: the checkpoint does not say '", name,
                                       "': it cannot be resumed");
  return entry->second;
}

/// Reads the number of this name. Throws Error naming a missing or malformed entry.
template <class T>
void read_text(const std::map<std::string, std::string>& texts, const char* name, T& value) {
  const std::string& text = text_at(texts, name);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  polyphase::require<polyphase::Error>(error == std::errc() && end == text.data() + text.size(),
                                       "train: expected a number for '", name, "', got '", text, "'");
}

}  // namespace training
