#pragma once
// How often this file's kernels have computed a sum again. A counter per file: device code is linked per file.

#include "cuda/conv/tensor_core/recompute/count.hpp"

namespace polyphase::cuda {

static __device__ unsigned long long own_recompute_count;
[[maybe_unused]] static const RecomputeCounter kOwnRecomputeCounter(&own_recompute_count);

/// By one thread for its sums.
__device__ __forceinline__ void count_recomputed(unsigned sums = 1) {
  atomicAdd(&own_recompute_count, static_cast<unsigned long long>(sums));
}

}  // namespace polyphase::cuda
