#include "io/safetensors_header.hpp"

#include <array>

#include <nlohmann/json.hpp>

#include "tensor/error.hpp"

namespace polyphase::io {
namespace {

struct DTypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array kSupported = {DTypeName{"F32", DType::f32}, DTypeName{"F64", DType::f64}, DTypeName{"F16", DType::f16},
                                   DTypeName{"BF16", DType::bf16}, DTypeName{"I64", DType::i64}};
std::string json_string(const std::string& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw FormatError(concat("save_safetensors: ", path, ": ", in_quotes(text), " is not valid UTF-8"));
  }
}

}  // namespace

std::optional<DType> dtype_from_format(std::string_view name) {
  for (const DTypeName& known : kSupported) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

std::string_view dtype_to_format(DType dtype) {
  for (const DTypeName& known : kSupported) {
    if (known.dtype == dtype) return known.name;
  }
  return {};
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  constexpr const char* kHex = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return result + (text.size() > kLongest ? "...\"" : "\"");
}

std::string format_header(const std::string& path, const SafetensorsHeader& header) {
  std::string text = "{";
  const auto begin_field = [&](const std::string& name) {
    if (text.size() > 1) text += ',';
    text += json_string(path, name) + ':';
  };
  if (!header.metadata.empty()) {
    begin_field("__metadata__");
    char separator = '{';
    for (const auto& [name, value] : header.metadata) {
      text += separator + json_string(path, name) + ':' + json_string(path, value);
      separator = ',';
    }
    text += '}';
  }
  for (const SafetensorsEntry& entry : header.entries) {
    begin_field(entry.name);
    text += concat("{\"dtype\":\"", dtype_to_format(entry.dtype), "\",\"shape\":[");
    for (int dim = 0; dim < entry.shape.rank(); ++dim) text += concat(dim == 0 ? "" : ",", entry.shape[dim]);
    text += concat("],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  require<FormatError>(text.size() <= kMaxHeaderBytes, "save_safetensors: ", path, ": the header would be ", text.size(),
                       " bytes, the format allows ", kMaxHeaderBytes);
  return text;
}

}  // namespace polyphase::io
