#pragma once
// What a residual unit's outputs become where they are averaged with other numbers (UnitAverage), with the bits of
// cuda/elementwise/average.cu: rounded after each step, and no step fused with another one.

#include <vector_types.h>

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/matrices.cuh"
#include "cuda/conv/unit_conv.hpp"

namespace polyphase::cuda::tensor_core {

/// sum/divisor, rounded once, for the divisors of can_average(): no quotient is near the middle of two numbers. A division
/// would be a call. Without a remainder the first quotient keeps the sign of zero, and infinity.
__device__ __forceinline__ float quotient(float sum, float divisor, float inverse) {
  const float first = __fmul_rn(sum, inverse), rest = fmaf(-first, divisor, sum);
  return fabsf(rest) > 0.0F ? fmaf(rest, inverse, first) : first;
}
__device__ __forceinline__ float4 averaged(const UnitAverage& average, const float4& other, const float4& y) {
  float v[4]{__fadd_rn(other.x, y.x), __fadd_rn(other.y, y.y), __fadd_rn(other.z, y.z), __fadd_rn(other.w, y.w)};
  if (average.inverse != 1.0F) {
#pragma unroll
    for (float& one : v) one = quotient(one, average.divisor, average.inverse);
  }
  if (average.slope != 1.0F) {
#pragma unroll
    for (float& one : v) one = one < 0.0F ? average.slope * one : one;
  }
  return make_float4(v[0], v[1], v[2], v[3]);
}

/// Two numbers of 16 bits. Their product with 1/divisor rounds as the quotient, which is far from the middle of two numbers.
template <class T>
__device__ __forceinline__ std::uint32_t averaged_word(const UnitAverage& average, std::uint32_t other, std::uint32_t y) {
  const float2 a = floats_of<T>(other), b = floats_of<T>(y);
  std::uint32_t word = rounded_word<T>(a.x + b.x, a.y + b.y);
  if (average.inverse != 1.0F) {
    const float2 sum = floats_of<T>(word);
    word = rounded_word<T>(sum.x * average.inverse, sum.y * average.inverse);
  }
  if (average.slope != 1.0F) {
    const float2 mean = floats_of<T>(word);
    word = rounded_word<T>(mean.x < 0.0F ? average.slope * mean.x : mean.x, mean.y < 0.0F ? average.slope * mean.y : mean.y);
  }
  return word;
}
template <class T>
__device__ __forceinline__ uint4 averaged_vector(const UnitAverage& average, const uint4& other, const uint4& y) {
  return {averaged_word<T>(average, other.x, y.x), averaged_word<T>(average, other.y, y.y),
          averaged_word<T>(average, other.z, y.z), averaged_word<T>(average, other.w, y.w)};
}

}  // namespace polyphase::cuda::tensor_core
