#pragma once
// Which thread and block this is, read anew where it is asked for: what is made of it needs no register before.

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
