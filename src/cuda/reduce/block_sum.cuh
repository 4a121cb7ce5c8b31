#pragma once
// The sum over a block's threads.

#include "cuda/kernel/warp_sum.cuh"

namespace polyphase::cuda {

/// The sum of `value` over the kWarps warps of the block, in every thread; the warps' sums are added in order. `partial`:
/// shared memory of the block, which the next call may use again.
template <int kWarps>
__device__ __forceinline__ double block_sum(double value, double (&partial)[kWarps]) {
  const int thread = static_cast<int>(threadIdx.x);
  value = warp_sum(value);
  __syncthreads();  // the sum before has been read
  if (thread % 32 == 0) partial[thread / 32] = value;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += partial[w];
  return sum;
}

}  // namespace polyphase::cuda
