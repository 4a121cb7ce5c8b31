#pragma once
// Counts the numbers of a tile that an operand does not represent exactly enough, and the magnitude from which a sum is right
// anyway.

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/conv/tensor_core/operand/traits.cuh"

namespace polyphase::cuda::tensor_core {

/// The count of a tile's numbers that are too small to be split, plus kNeverSplit for each that has no operand. A warp adds the
/// counts of its threads (up to 2^15 numbers per thread).
using SuspectCount = std::uint32_t;
inline constexpr SuspectCount kNeverSplit = 1U << 20;

/// The count of a thread's source numbers: `small` of them are too small; `most` are the largest halves.
__device__ __forceinline__ SuspectCount suspect_count_of(std::uint32_t small, __half2 most) {
  const float2 largest = __half22float2(most);
  return small + (largest.x <= kLargestHalf && largest.y <= kLargestHalf ? 0U : kNeverSplit);
}
/// The count of packed weights; each sum has up to `products` of them.
__device__ __forceinline__ SuspectCount weight_suspect_count(Split worst, std::int64_t products) {
  if (worst == Split::never) return kNeverSplit;
  return worst == Split::small ? static_cast<SuspectCount>(products) : 0;
}
/// The counts that four converting warps left at `found` in shared memory, plus the weights' count. Through a shuffle the
/// compiler knows that it is uniform in a warp. Only the lane that releases the stage reads them, so no read can be late.
__device__ __forceinline__ SuspectCount suspect_count_of_tile(const unsigned char* found, SuspectCount of_weights, int lane) {
  uint4 of_warps{};
  if (lane == 0) of_warps = *reinterpret_cast<const uint4*>(found);
  return __shfl_sync(0xffffffffU, of_weights + of_warps.x + of_warps.y + of_warps.z + of_warps.w, 0);
}
/// The magnitude from which a sum is right in spite of its lost parts: each number that is too small counts once.
template <class Operand>
__device__ __forceinline__ float least_right(SuspectCount suspect_count) {
  return static_cast<float>(Operand::kLeastSafe) * static_cast<float>(suspect_count);
}

/// Whether one of a warp's sums is below `least`; `columns` of its 16 columns exist. A thread has two sums of column lane/4,
/// then two of column lane/4 + 8, and so on. Called by whole warps.
template <int kSums>
__device__ __forceinline__ bool has_sum_below(float least, std::int64_t columns, const float (&sums)[kSums]) {
  float smallest[2] = {least, least};
#pragma unroll
  for (int i = 0; i < kSums; ++i) smallest[i / 2 % 2] = fminf(smallest[i / 2 % 2], fabsf(sums[i]));
  const auto column = static_cast<std::int64_t>(threadIdx.x % 32 / 4);
  return __any_sync(0xffffffffU, (smallest[0] < least && column < columns) || (smallest[1] < least && column + 8 < columns)) !=
         0;
}

}  // namespace polyphase::cuda::tensor_core
