#pragma once
// All of the addresses of a convolution's arrays that the choice of a kernel depends on.

#include <cstdint>

namespace polyphase::cuda {

/// Bytes from a multiple of a sector of memory (32 bytes) to where arrays begin. The library's allocator hands out whole
/// sectors: of its tensors both are 0, and what is chosen for them is a function of problem and device.
struct Alignment {
  int source = 0;
  int out = 0;
  bool operator==(const Alignment&) const = default;
};

[[nodiscard]] inline Alignment alignment_of(const void* source, const void* out) {
  constexpr std::uintptr_t kSector = 32;
  return {static_cast<int>(reinterpret_cast<std::uintptr_t>(source) % kSector),
          static_cast<int>(reinterpret_cast<std::uintptr_t>(out) % kSector)};
}

}  // namespace polyphase::cuda
