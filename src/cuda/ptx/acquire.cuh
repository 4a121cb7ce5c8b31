#pragma once
// A word in global memory by which one block tells others that what it wrote before can be read (PTX ISA, "ld", "st", "fence").

#include <cstdint>

namespace polyphase::cuda::ptx {

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t word;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ void store_release(std::uint32_t* to, std::uint32_t word) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ __forceinline__ void add_release(std::uint32_t* to, std::uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/// Orders ordinary accesses to global memory and those of bulk copies, on both sides of such a word.
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace polyphase::cuda::ptx
