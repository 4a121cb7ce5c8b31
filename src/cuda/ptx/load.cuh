#pragma once
// Loads from global memory under a predicate, and stores that stay whole (PTX ISA, "ld", "st").

#include <vector_types.h>

namespace polyphase::cuda::ptx {

/// *at if it exists, else zero. The load keeps its place among other volatile instructions, such as products.
__device__ __forceinline__ float load_or_zero(const float* at, bool exists) {
  float value;
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n mov.f32 %0, 0f00000000;\n @p ld.global.f32 %0, [%1];\n}"
               : "=f"(value)
               : "l"(at), "r"(exists ? 1 : 0));
  return value;
}

__device__ __forceinline__ float4 load_or_zero(const float4* at, bool exists) {
  float4 value;
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %5, 0;\n mov.f32 %0, 0f00000000;\n mov.f32 %1, 0f00000000;\n mov.f32 %2, "
      "0f00000000;\n"
      " mov.f32 %3, 0f00000000;\n @p ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "l"(at), "r"(exists ? 1 : 0));
  return value;
}

/// 16 bytes to a multiple of 16, in one instruction: the compiler may split an assignment into four.
__device__ __forceinline__ void store_vector(void* to, uint4 value) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

}  // namespace polyphase::cuda::ptx
