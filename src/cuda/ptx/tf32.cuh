#pragma once
// tf32: f32 with ten bits of mantissa, in a float whose other bits are zero (PTX ISA, "cvt").

#include <cstdint>

namespace polyphase::cuda::ptx {

/// The nearest tf32, ties away from zero. Inf and NaN stay.
__device__ __forceinline__ float to_tf32(float value) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}

/// The nearest finite tf32 of a finite number; Inf and NaN stay.
__device__ __forceinline__ float to_finite_tf32(float value) {
  const float rounded = to_tf32(value);
  return isinf(rounded) && !isinf(value) ? __uint_as_float(__float_as_uint(value) & 0xffffe000U) : rounded;
}

}  // namespace polyphase::cuda::ptx
