#pragma once
// Shared memory by its 32-bit address (PTX ISA, "ld", "st").

#include <cstdint>

namespace polyphase::cuda::ptx {

__device__ __forceinline__ void store_shared(std::uint32_t to, std::uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
/// `to`: a multiple of 8.
__device__ __forceinline__ void store_shared(std::uint32_t to, float2 pair) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(pair.x), "f"(pair.y) : "memory");
}
__device__ __forceinline__ std::uint32_t load_shared(std::uint32_t from) {
  std::uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
/// Two words, from a multiple of 8 bytes.
__device__ __forceinline__ uint2 load_shared_pair(std::uint32_t from) {
  uint2 pair;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(pair.x), "=r"(pair.y) : "r"(from) : "memory");
  return pair;
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
