#pragma once
// Accesses to global memory that other blocks read or write at the same time: past the L1 cache, in no order, each word whole.

namespace polyphase::cuda::ptx {

__device__ __forceinline__ unsigned load_relaxed(const unsigned* from) {
  unsigned word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

/// Two neighbouring words at a multiple of 16 bytes; each is whole, but they may be of different times.
__device__ __forceinline__ void load_relaxed(const unsigned long long* from, unsigned long long (&words)[2]) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(words[0]), "=l"(words[1]) : "l"(from) : "memory");
}

__device__ __forceinline__ void store_relaxed(unsigned long long* to, unsigned long long word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

}  // namespace polyphase::cuda::ptx
