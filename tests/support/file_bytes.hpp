#pragma once
// Readers of files, given the bytes of one.

#include <doctest/doctest.h>

#include <string>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"

namespace polyphase::testing {

/// What `load` (path -> value) makes of a file of these bytes.
template <class Load>
auto loaded_from(const std::string& bytes, const Load& load) {
  static const TemporaryDirectory directory;
  write_bytes(directory.file("f"), bytes);
  return load(directory.file("f"));
}

/// `load` throws a FormatError with `part` in its text, which names the function first.
template <class Load>
bool refuses(const std::string& bytes, const std::string& function, const std::string& part, const Load& load) {
  const std::string error = error_of<FormatError>([&] { return loaded_from(bytes, load); });
  CAPTURE(error);
  const bool is_right = error.starts_with(function + ": ") && error.find(part) != std::string::npos;
  CHECK(is_right);
  return is_right;
}

}  // namespace polyphase::testing
