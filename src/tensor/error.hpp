#pragma once
// Every exception of the library, and the helper that builds their texts.
//
// A text names the operation, what was expected and what it got:
//   conv_transpose1d: expected x (N, C_in=16, L_in), got (4, 8, 100)
// An object whose function threw is unchanged. Destructors never throw.

#include <cstdint>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace polyphase {

/// Base of all errors of the library.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A shape, size or hyper-parameter that does not fit.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A dtype that the operation does not accept, or a mix of dtypes.
class DTypeError : public Error {
 public:
  using Error::Error;
};

/// A missing device, tensors on different devices, or a failed device call.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A failed allocation; the text gives the requested, live, cached, free and total bytes.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A file that could not be read or written, or whose content is malformed.
class FormatError : public Error {
 public:
  explicit FormatError(const std::string& what, std::int64_t offset = -1) : Error(what), offset_(offset) {}
  /// Byte offset in the file at which reading failed, or -1 if there is none.
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }

 private:
  std::int64_t offset_;
};

/// Misuse of the tape: backward through a freed graph, an in-place write to a saved tensor, ...
class AutogradError : public Error {
 public:
  using Error::Error;
};

/// A feature that does not exist; the text names the nearest one that does.
class NotImplemented : public Error {
 public:
  using Error::Error;
};

/// Streams the parts into one string, independent of the global locale: it is also used to write files.
template <class... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  (stream << ... << parts);
  return std::move(stream).str();
}

/// Throws `E` with the concatenated parts unless `condition` holds. The text is only built on failure.
template <class E, class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw E(concat(parts...));
}

}  // namespace polyphase
