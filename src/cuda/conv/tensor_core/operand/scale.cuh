#pragma once
// The largest magnitude of a tensor or of a sample of it, from which the scale of a splitting follows.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/traits.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPrepareThreads = 256;
inline constexpr int kSampleBlocks = 32;
inline constexpr std::int64_t kSample = kSampleBlocks * kPrepareThreads * 8;

/// Largest finite magnitude of the values at first, first + step, ... as bits, into *largest.
__device__ __forceinline__ void find_largest(const float* __restrict__ values, std::int64_t first, std::int64_t step,
                                             std::int64_t count, std::uint32_t* largest) {
  std::uint32_t most = 0;
  for (std::int64_t i = first; i < count; i += step) {
    const std::uint32_t magnitude = __float_as_uint(values[i]) & 0x7fffffffU;
    if (magnitude < 0x7f800000U) most = max(most, magnitude);
  }
  most = __reduce_max_sync(0xffffffffU, most);
  if (threadIdx.x % 32 == 0) atomicMax(largest, most);  // of integers: the order does not matter
}

}  // namespace polyphase::cuda::tensor_core
