#pragma once
// How often this file's kernels have computed a sum again. A counter per file: device code is linked per file.

#include "cuda/conv/tensor_core/recompute/count.hpp"

namespace polyphase::cuda {

static __device__ unsigned long long own_recompute_count;
[[maybe_unused]] static const RecomputeCounter kOwnRecomputeCounter(&own_recompute_count);

/// By one thread for one sum.
__device__ __forceinline__ void count_recomputed() { atomicAdd(&own_recompute_count, 1ULL); }

}  // namespace polyphase::cuda
