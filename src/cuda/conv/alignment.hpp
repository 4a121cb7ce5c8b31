#pragma once
// The part of a convolution's addresses that the choice of a kernel depends on.

#include <cstdint>

namespace polyphase::cuda {

/// Offsets of the arrays in a sector of memory (32 bytes). The library's allocator returns whole sectors, so both are 0 for its
/// tensors and the choice is a function of problem and device alone.
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
