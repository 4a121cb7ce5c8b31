#pragma once
// Reads numbers and runs of bytes from memory, never past its end. Internal.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tensor/error.hpp"

namespace polyphase::io {

static_assert(std::endian::native == std::endian::little, "the formats are little endian, and bytes are used as they stand");

/// Walks over `bytes`, which begin at byte `start` of the file `path`. Every reader throws FormatError
/// "OPERATION: PATH: ... (at byte N)" where the bytes end too early.
class ByteReader {
 public:
  ByteReader(std::string operation, std::string path, std::string_view bytes, std::size_t start = 0)
      : operation_(std::move(operation)), path_(std::move(path)), bytes_(bytes), start_(start) {}

  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }
  [[nodiscard]] bool is_at_end() const { return at_ == bytes_.size(); }
  /// In the file.
  [[nodiscard]] std::size_t offset() const { return start_ + at_; }

  /// The next `count` bytes.
  std::string_view take(std::uint64_t count) {
    expect(count <= left(), "expected ", count, " more bytes, there are ", left());
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return taken;
  }
  /// A little-endian number.
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  /// The bytes up to the next '\n', which is passed over.
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    expect(end != bytes_.npos, "expected a line");
    const std::string_view taken = take(end - at_);
    ++at_;
    return taken;
  }
  /// A reader of the next `count` bytes, which are passed over.
  ByteReader part(std::uint64_t count) {
    const std::size_t begin = offset();
    return {operation_, path_, take(count), begin};
  }

  /// Throws FormatError with `what` and the offset unless `condition`.
  template <class... What>
  void expect(bool condition, const What&... what) const {
    if (!condition) fail(concat(what...));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(concat(operation_, ": ", path_, ": ", what, " (at byte ", offset(), ")"),
                      static_cast<std::int64_t>(offset()));
  }

 private:
  std::string operation_;
  std::string path_;
  std::string_view bytes_;
  std::size_t start_;
  std::size_t at_ = 0;
};

}  // namespace polyphase::io
