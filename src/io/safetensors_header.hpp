#pragma once
// The JSON header of a safetensors file, to and from plain structs. Not for users.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.hpp"
#include "tensor/shape.hpp"

namespace polyphase::io {

inline constexpr std::uint64_t kLengthBytes = 8;             ///< the header's length precedes the header
inline constexpr std::uint64_t kMaxHeaderBytes = 100000000;  ///< the limit of the format's own library

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;  ///< from the start of the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Parses and validates the header `text` of a file with `data_bytes` bytes of data. Throws FormatError naming `path`.
[[nodiscard]] SafetensorsHeader parse_header(const std::string& path, std::string_view text, std::uint64_t data_bytes);

/// The header as JSON, padded with spaces so that the data starts at a multiple of 8. Throws FormatError naming `path` on a
/// string that is not UTF-8 and on a header past kMaxHeaderBytes.
[[nodiscard]] std::string format_header(const std::string& path, const SafetensorsHeader& header);

/// "F32" and so on, for the dtypes that a Tensor can have; nothing for all other names.
[[nodiscard]] std::optional<DType> dtype_from_format(std::string_view name);
[[nodiscard]] std::string_view dtype_to_format(DType dtype);

/// `text` in quotes, safe for a terminal: control characters and non-ASCII as \xNN, truncated after 80 characters.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace polyphase::io
