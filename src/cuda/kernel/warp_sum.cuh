#pragma once
// The sum over a warp's lanes.

namespace polyphase::cuda {

/// The sum of `value` over the warp's 32 lanes, in every lane; of lanes 16 apart first, then 8, 4, 2 and 1.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  return value;
}

}  // namespace polyphase::cuda
