#pragma once
// How numbers of a tensor become operands of wgmma.
//
// SplitF16: v*scale = high + low/2^11 with two f16, |v*scale - high - low/2^11| <= 2^-23 |v*scale| while high is a normal f16
// (Ootomo and Yokota, arXiv 2203.03341). The products high*high and high*low + low*high are summed separately.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/ptx/wgmma.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr float kLeastNormalHalf = 6.103515625e-05F;  // 2^-14
inline constexpr float kLargestHalf = 65504.0F;
inline constexpr float kLowScale = 2048.0F;  // 2^11

/// T as kParts_ 16-bit numbers.
template <class T, ptx::Tensor kType_, int kParts_>
struct OperandTraits {
  using Source = T;
  static constexpr ptx::Tensor kType = kType_;
  static constexpr int kParts = kParts_, kVector = 8, kDepth = 16;
  static constexpr bool kSplit = kParts_ == 2;
  static constexpr bool kScaled = sizeof(T) == 4;  ///< multiplied by a power of two, so that it fits a half
  /// Has the exponents of f32: parts that are not scaled against each other, of which three have all bits of an f32.
  static constexpr bool kWide = kScaled && kType_ == ptx::Tensor::bf16;
  // A scaled sum this large loses less than 2^-24 of itself per number that is too small: at most 2^-36 times the other
  // operand's 2^16. With one part it loses less than 2^-13: at most 2^-25 * 2^16.
  static constexpr double kLeastSafe = kSplit ? 32 : 16;
};
using SplitF16 = OperandTraits<float, ptx::Tensor::f16, 2>;
/// Precision::tf32 without tf32 instructions: the high half alone has the ten mantissa bits, at twice the speed and half the
/// memory.
using ScaledF16 = OperandTraits<float, ptx::Tensor::f16, 1>;
using Bf16x2 = OperandTraits<float, ptx::Tensor::bf16, 2>;
using Bf16x3 = OperandTraits<float, ptx::Tensor::bf16, 3>;
using F16 = OperandTraits<__half, ptx::Tensor::f16, 1>;
using Bf16 = OperandTraits<__nv_bfloat16, ptx::Tensor::bf16, 1>;

/// The low parts of a and b, whose nearest f16 are `high`, as the bits of two f16.
__device__ __forceinline__ std::uint32_t low_parts(float a, float b, __half2 high) {
  const float2 back = __half22float2(high);
  const __half2 low = __floats2half2_rn((a - back.x) * kLowScale, (b - back.y) * kLowScale);
  return *reinterpret_cast<const std::uint32_t*>(&low);
}

/// Converts kVector numbers to the 16 bytes of each part.
template <class Operand>
__device__ __forceinline__ void convert(const typename Operand::Source (&v)[Operand::kVector], float scale,
                                        uint4 (&parts)[Operand::kParts]) {
  if constexpr (Operand::kSplit) {
    std::uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
      const __half2 h = __floats2half2_rn(a, b);
      high[i] = *reinterpret_cast<const std::uint32_t*>(&h);
      low[i] = low_parts(a, b, h);
    }
    parts[0] = make_uint4(high[0], high[1], high[2], high[3]);
    parts[1] = make_uint4(low[0], low[1], low[2], low[3]);
  } else if constexpr (Operand::kScaled) {
    std::uint32_t high[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __half2 h = __floats2half2_rn(v[2 * i] * scale, v[2 * i + 1] * scale);
      high[i] = *reinterpret_cast<const std::uint32_t*>(&h);
    }
    parts[0] = make_uint4(high[0], high[1], high[2], high[3]);
  } else {
    std::uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto low = static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&v[2 * i]));
      const auto high = static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&v[2 * i + 1]));
      word[i] = low | high << 16;
    }
    parts[0] = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

/// Precedes packed weights in memory: the result of splitting them, found on the device.
struct WeightHeader {
  std::uint32_t largest;  // largest magnitude, as float bits
  std::uint32_t split;    // the worst Split of a weight
  std::uint32_t small;    // those in vectors of rows that are all Split::small
};
inline constexpr int kWeightHeaderBytes = 256;

/// log2 of the power of two that scales numbers up to `largest` into [2^target, 2^(target+1)).
__device__ __forceinline__ int scale_exponent(std::uint32_t largest, int target) {
  const int exponent = static_cast<int>(largest >> 23) - 127;
  if (largest == 0 || exponent == 128) return 0;
  return min(max(target - exponent, -120), 120);
}
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

inline constexpr int kWeightTarget = 14;  // the largest weight is known exactly
inline constexpr int kSourceTarget = 12;  // the largest source element only from a sample

/// How accurately a number splits at a scale of 2^exponent.
enum class Split : std::uint32_t {
  exact,  ///< to 2^-22 of itself
  small,  ///< below the normal halves: to 2^-36 of 2^-exponent
  never,  ///< beyond the largest half, Inf or NaN
};

struct SplitRange {
  std::uint32_t least, largest;
  __device__ explicit SplitRange(int exponent) {
    // If the bound is subnormal, the least normal number takes its place.
    least = max(__float_as_uint(ldexpf(kLeastNormalHalf, -exponent)), 0x00800000U);
    largest = min(__float_as_uint(ldexpf(kLargestHalf, -exponent)), 0x7f7fffffU);
  }
  __device__ __forceinline__ Split of(float v) const {
    const std::uint32_t magnitude = __float_as_uint(v) & 0x7fffffffU;
    if (magnitude > largest) return Split::never;
    return magnitude < least && magnitude != 0 ? Split::small : Split::exact;
  }
};

__device__ __forceinline__ Split worse(Split a, Split b) {
  return static_cast<std::uint32_t>(a) > static_cast<std::uint32_t>(b) ? a : b;
}

}  // namespace polyphase::cuda::tensor_core
