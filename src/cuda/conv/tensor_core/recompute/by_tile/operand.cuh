#pragma once
// The two forms of an operand. f16: a number and what its half leaves, scaled so that the largest is just below the largest
// half; for numbers whose magnitudes differ by less than 2^28. tf32: the same with the exponents of f32, at half the speed.

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"
#include "cuda/ptx/tf32.cuh"

namespace polyphase::cuda::tensor_core {

/// The power of two to which the largest number of a unit and of a column is scaled.
constexpr int source_target(int form) { return form == kFormF16 ? 14 : 50; }
constexpr int weight_target(int form) { return form == kFormF16 ? 14 : 40; }
/// The exponents of numbers of the form f16 differ by at most so much: the least is a normal half.
inline constexpr int kSpanOfF16 = 28;

/// floor(log2 of a magnitude), given as float bits; 0 for zero.
__device__ __forceinline__ int exponent_of(std::uint32_t magnitude) {
  if (magnitude == 0) return 0;
  if (magnitude >= 0x00800000U) return static_cast<int>(magnitude >> 23) - 127;
  return 31 - __clz(static_cast<int>(magnitude)) - 149;
}

/// What numbers tell about the form that they need.
struct Magnitudes {
  std::uint32_t most = 0, least = 0x7f7fffffU;  // of the finite ones that are not zero, as float bits
  std::uint32_t unusual = 0;                    // not 0: there is an Inf or NaN
  __device__ __forceinline__ void add(float value) {
    const std::uint32_t magnitude = __float_as_uint(value) & 0x7fffffffU;
    if (magnitude >= 0x7f800000U) {
      unusual = 1;
    } else if (magnitude != 0) {
      most = max(most, magnitude);
      least = min(least, magnitude);
    }
  }
  [[nodiscard]] __device__ __forceinline__ bool needs_tf32() const {
    return unusual != 0 || (most != 0 && exponent_of(least) < exponent_of(most) - kSpanOfF16);
  }
};

/// 2^exponent as two factors, because no float holds every exponent that occurs. Zero where nothing would be left.
struct PowerPair {
  float first = 0, second = 0;
  __device__ __forceinline__ explicit PowerPair(int exponent) {
    if (exponent < -252) return;
    const int all = min(exponent, 252);
    first = power_of_two(all / 2);
    second = power_of_two(all - all / 2);
  }
};

/// Eight or four numbers as the 16 bytes of each part.
template <int kForm, int kParts>
__device__ __forceinline__ void make_parts(const float (&v)[rows_of_vector(kForm)], const PowerPair& scale,
                                           uint4 (&parts)[kParts]) {
  std::uint32_t words[2][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kForm == kFormF16) {
      const float a = v[2 * i] * scale.first * scale.second, b = v[2 * i + 1] * scale.first * scale.second;
      const __half2 high = __floats2half2_rn(a, b);
      words[0][i] = *reinterpret_cast<const std::uint32_t*>(&high);
      words[1][i] = low_parts(a, b, high);
    } else {
      const float a = v[i] * scale.first * scale.second, high = ptx::to_tf32(a);
      words[0][i] = __float_as_uint(high);
      words[1][i] = __float_as_uint(ptx::to_tf32((a - high) * kLowScale));
    }
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part)
    parts[part] = make_uint4(words[part][0], words[part][1], words[part][2], words[part][3]);
}

}  // namespace polyphase::cuda::tensor_core
