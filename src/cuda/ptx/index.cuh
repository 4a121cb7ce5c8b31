#pragma once
// Thread and block index, read again at each use, so that no register holds them or values computed from them.

#include <cstdint>

namespace polyphase::cuda::ptx {

/// threadIdx.x.
__device__ __forceinline__ std::uint32_t thread_index() {
  std::uint32_t index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
/// blockIdx.x.
__device__ __forceinline__ std::uint32_t block_index() {
  std::uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

}  // namespace polyphase::cuda::ptx
