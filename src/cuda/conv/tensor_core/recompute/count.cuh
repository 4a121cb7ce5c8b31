#pragma once
// How often this file's kernels have computed a sum again. A counter per file: device code is linked per file.

#include "cuda/conv/tensor_core/recompute/count.hpp"

namespace polyphase::cuda {

static __device__ unsigned long long own_again_count;
[[maybe_unused]] static const AgainCounter kOwnAgainCounter(&own_again_count);

/// By one thread for one sum.
__device__ __forceinline__ void count_again() { atomicAdd(&own_again_count, 1ULL); }

}  // namespace polyphase::cuda
