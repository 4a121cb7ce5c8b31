#pragma once
// What a thread is in a block of warpgroups, and the weights that a block keeps.

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// The warpgroup in the block, and the warp in that. Through a shuffle the compiler knows them to be the same in a warp; else
/// it serialises the wgmmas.
__device__ __forceinline__ int group_of_block() { return __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0); }
__device__ __forceinline__ int warp_of_group() { return __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32 % 4, 0); }
__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x) % 32; }

/// One thread: begins to copy all `bytes` of a block's weights to shared memory at `to`; `full` is its barrier.
__device__ __forceinline__ void copy_weights(const unsigned char* from, std::uint32_t bytes, std::uint32_t to,
                                             std::uint32_t full) {
  ptx::mbarrier_arrive_expect(full, bytes);
  for (std::uint32_t at = 0; at < bytes; at += 16384) ptx::bulk_copy(to + at, from + at, min(16384U, bytes - at), full);
}

}  // namespace polyphase::cuda::tensor_core
