#pragma once
// Shared memory by its 32-bit address (PTX ISA, "ld", "st").

#include <cstdint>

namespace polyphase::cuda::ptx {

__device__ __forceinline__ void store_shared(std::uint32_t to, std::uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
__device__ __forceinline__ std::uint32_t load_shared(std::uint32_t from) {
  std::uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
/// The low half of `word`.
__device__ __forceinline__ void store_shared_half(std::uint32_t to, std::uint32_t word) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(static_cast<std::uint16_t>(word)) : "memory");
}
__device__ __forceinline__ std::uint32_t load_shared_half(std::uint32_t from) {
  std::uint16_t half;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(half) : "r"(from) : "memory");
  return half;
}

}  // namespace polyphase::cuda::ptx
