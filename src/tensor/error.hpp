#pragma once
// Every exception of the library, and the helper that builds their texts.
//
// A text names the operation, what was expected and what it got:
//   conv_transpose1d: expected x (N, C_in=16, L_in), got (4, 8, 100)
// An object whose function threw is unchanged. Destructors never throw.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

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

namespace detail {

/// A part of a text: a view of it if it is text, a copy of a number, or a pointer with the function that streams what it points
/// to.
class TextPart {
 public:
  template <class T>
  TextPart(const T& value) {  // NOLINT(google-explicit-constructor): concat makes parts from its arguments
    if constexpr (std::is_convertible_v<const T&, const char*> || std::is_same_v<T, std::string> ||
                  std::is_same_v<T, std::string_view>) {
      kind_ = Kind::text;
      text_ = value;
    } else if constexpr (sizeof(T) == 1 && std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      kind_ = Kind::character;
      signed_ = value;
    } else if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::floating;
      floating_ = value;
    } else if constexpr (std::is_unsigned_v<T>) {  // also bool
      kind_ = Kind::unsigned_number;
      unsigned_ = value;
    } else if constexpr (std::is_integral_v<T>) {
      kind_ = Kind::signed_number;
      signed_ = value;
    } else {
      kind_ = Kind::streamed;
      streamed_ = {&value, [](std::ostream& out, const void* at) { out << *static_cast<const T*>(at); }};
    }
  }
  void write(std::ostream& out) const;

 private:
  enum class Kind : std::uint8_t { text, character, floating, signed_number, unsigned_number, streamed };
  struct Streamed {
    const void* value;
    void (*write)(std::ostream& out, const void* value);
  };
  Kind kind_;
  union {
    std::string_view text_{};
    double floating_;
    std::int64_t signed_;
    std::uint64_t unsigned_;
    Streamed streamed_;
  };
};

/// Not a template: each call would instantiate it, and every source would include <sstream>.
[[nodiscard]] std::string concat(std::initializer_list<TextPart> parts);
template <class E>
[[noreturn]] void throw_error(std::initializer_list<TextPart> parts) {
  throw E(concat(parts));
}

}  // namespace detail

/// Streams the parts into one string, independent of the global locale: it is also used to write files.
template <class... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  return detail::concat({parts...});
}

/// Throws `E` with the concatenated parts unless `condition` holds. The text is only built on failure.
template <class E, class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    detail::throw_error<E>({parts...});
}

}  // namespace polyphase
