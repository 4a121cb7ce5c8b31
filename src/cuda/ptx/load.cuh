#pragma once
// Loads from global memory under a predicate (PTX ISA, "ld").

namespace polyphase::cuda::ptx {

/// *at if it exists, else zero. The load keeps its place among other volatile instructions, such as products.
__device__ __forceinline__ float load_or_zero(const float* at, bool exists) {
  float value;
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n mov.f32 %0, 0f00000000;\n @p ld.global.f32 %0, [%1];\n}"
               : "=f"(value)
               : "l"(at), "r"(exists ? 1 : 0));
  return value;
}

}  // namespace polyphase::cuda::ptx
