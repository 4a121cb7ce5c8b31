#pragma once
// FNV-1a, 64 bits: distinguishes names and contents; no protection against attacks.

#include <cstdint>
#include <string_view>

namespace training {

inline constexpr std::uint64_t kHashStart = 0xcbf29ce484222325ULL;

/// Continues the hash `hash` of earlier bytes with these bytes.
[[nodiscard]] inline std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash = kHashStart) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace training
