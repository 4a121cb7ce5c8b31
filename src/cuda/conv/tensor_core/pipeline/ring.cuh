#pragma once
// A ring of buffers between warps.

#include <cstdint>

namespace polyphase::cuda::tensor_core {

/// Where one side of a ring stands: a pair of barriers a buffer, each waited
/// for by parity.
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
  /// `count` buffers further.
  __device__ __forceinline__ void skip(int count, int stages) {
    for (stage += count; stage >= stages; stage -= stages) parity ^= 1;
  }
};

}  // namespace polyphase::cuda::tensor_core
