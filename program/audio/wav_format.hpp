#pragma once
// The parts of a WAV header, for reader and writer. Numbers are little-endian in the file.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace polyphase::program::wav {

inline constexpr std::uint16_t kTagPcm = 1;
inline constexpr std::uint16_t kTagFloat = 3;
inline constexpr std::uint16_t kTagExtensible = 0xFFFE;      ///< the real tag is then the beginning of the sub-format GUID
inline constexpr std::uint32_t kSizeElsewhere = 0xFFFFFFFF;  ///< RF64: it is in the ds64 chunk; RIFF: it is unknown

/// Reads `bytes` bytes as an unsigned little-endian number.
[[nodiscard]] inline std::uint64_t load(const unsigned char* data, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = (value << 8) | data[i];
  return value;
}

/// Writes the low `bytes` bytes of `value`, little-endian.
inline void store(unsigned char* data, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(value >> (8 * i));
}

inline constexpr std::size_t kOpeningBytes = 12;
/// Whether the first kOpeningBytes of a file are those of a WAV file.
[[nodiscard]] inline bool opens_wav(const void* bytes) {
  const auto* text = static_cast<const char*>(bytes);
  return (std::memcmp(text, "RIFF", 4) == 0 || std::memcmp(text, "RF64", 4) == 0) && std::memcmp(text + 8, "WAVE", 4) == 0;
}

}  // namespace polyphase::program::wav
