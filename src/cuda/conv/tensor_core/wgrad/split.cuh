#pragma once
// Numbers of x and y as operands of the weight gradient, and what halves of them cannot hold.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"

namespace polyphase::cuda::tensor_core {

/// What a thread saw that halves cannot hold.
struct WgradRange {
  __half2 most;         // the largest magnitude; NaN stays
  std::uint32_t small;  // how many are below the normal halves
};

inline constexpr std::uint32_t kLowerHalves = 0x5410;  // of two words, for __byte_perm

/// How numbers become operands.
template <class Operand>
struct WgradSplit {
  static constexpr bool kHalves = Operand::kScaled && !Operand::kWide;

  /// The parts of eight numbers, a word each, of 16 bits in its lower half, the largest part first. `least` becomes the least
  /// magnitude there was, where parts are halves of f32.
  __device__ static __forceinline__ void split(const std::uint32_t (&words)[8], float scale,
                                               std::uint32_t (&parts)[Operand::kParts][4], WgradRange& range, __half2& least) {
    if constexpr (Operand::kWide) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float a = __uint_as_float(words[2 * i]) * scale, b = __uint_as_float(words[2 * i + 1]) * scale;
#pragma unroll
        for (int part = 0; part < Operand::kParts; ++part) {
          const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
          const std::uint32_t bits = *reinterpret_cast<const std::uint32_t*>(&both);
          parts[part][i] = bits;
          a -= __uint_as_float(bits << 16);
          b -= __uint_as_float(bits & 0xffff0000U);
        }
      }
    } else if constexpr (Operand::kScaled) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float a = __uint_as_float(words[2 * i]) * scale, b = __uint_as_float(words[2 * i + 1]) * scale;
        const __half2 h = __floats2half2_rn(a, b);
        parts[0][i] = *reinterpret_cast<const std::uint32_t*>(&h);
        range.most = __hmax2_nan(range.most, __habs2(h));
        least = __hmin2(least, __habs2(h));
        if constexpr (Operand::kParts == 2) parts[1][i] = low_parts(a, b, h);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) parts[0][i] = __byte_perm(words[2 * i], words[2 * i + 1], kLowerHalves);
    }
  }

  /// Whether a number may be below the normal halves.
  __device__ static __forceinline__ bool is_small(__half2 least) {
    if constexpr (!kHalves) return false;
    return !__hbgt2(least, __float2half2_rn(kLeastNormalHalf));
  }

  /// Zeros split exactly: they do not count.
  __device__ static __forceinline__ void count_small(const std::uint32_t (&words)[8], float scale, WgradRange& range) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const float value = __uint_as_float(words[c]);
      range.small += value != 0.0F && fabsf(value * scale) < kLeastNormalHalf ? 1U : 0U;
    }
  }
};

/// A warp's share of what recompute.cuh has to know.
__device__ __forceinline__ void report(const WgradRange& range, const WgradTiling& tiling, WgradScales* scales) {
  const float2 most = __half22float2(range.most);
  const std::uint32_t most_bits = __reduce_max_sync(0xffffffffU, max(__float_as_uint(most.x), __float_as_uint(most.y)));
  const std::uint32_t small = __reduce_add_sync(0xffffffffU, range.small);
  if (threadIdx.x % 32 != 0) return;
  atomicMax(&scales->most, most_bits);
  if (small == 0) return;
  atomicAdd(&scales->small, SmallCount{small});
  atomicAdd(small_of_jobs(scales) + blockIdx.x % static_cast<std::uint32_t>(tiling.jobs), SmallCount{small});
}

}  // namespace polyphase::cuda::tensor_core
