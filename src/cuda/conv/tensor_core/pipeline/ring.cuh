#pragma once
// A ring of buffers between warps.

#include <cstdint>

namespace polyphase::cuda::tensor_core {

/// The position of one side in a ring; each buffer has a pair of barriers, waited for by parity.
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
  /// Advances by `count` buffers.
  __device__ __forceinline__ void skip(int count, int stages) {
    for (stage += count; stage >= stages; stage -= stages) parity ^= 1;
  }
};

}  // namespace polyphase::cuda::tensor_core
