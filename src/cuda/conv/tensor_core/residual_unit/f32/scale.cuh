#pragma once
// The scale of a block's operand, and which sums it is too coarse for.
//
// To the accuracy of tf32 an operand is one f16; to that of f32 it is two, v = high + low/2^11, each with 11 bits. What follows
// is said of one; with two, a loss is smaller by 2^11, and so is what may be lost.
//
// A block's numbers are multiplied by a power of two and rounded to f16, which has the 11 bits of tf32. The largest number of
// the middle becomes one from 2^14 to 2^15. The source's scale is found in one half of the block and leaves room for numbers
// eight times as large in the other half; where they are larger, the source is loaded again. A number below 2^-14 becomes a
// subnormal f16, or zero, and loses up to 2^-25. Only where a block has such numbers its sums are looked at: a sum that is
// large enough has lost no more than 2^-12 of itself. A block with another sum is marked, and marked.cuh computes it.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// What the sums of an output channel need, in shared memory.
struct __align__(16) UnitChannel {
  float inverse;  ///< of the weights' scale
  float bias;
  float
      largest_loss;  ///< 2^-13 of a scaled sum of the weights' magnitudes: a sum above it is accurate if all numbers are small
  float of_weights;  ///< the same for weights that are small; infinite if their scale does not fit, 0 if none is
};

static_assert(sizeof(UnitChannel) == kUnitChannelBytes);

/// What the sums of marked blocks need of an output channel: the inverse of the weights' scale, and the sum of the scaled
/// weights' magnitudes.
struct UnitMarkedChannel {
  float inverse, sum;
};

/// The packed weights of both convolutions, as scaled f16 and as scaled tf32 (pack.cuh), and their biases, which may be null.
struct UnitF32Weights {
  const unsigned char *weights[2], *of_marked[2];
  const UnitChannel* channels[2];
  const UnitMarkedChannel* marked_channels[2];
  const float* bias[2];
};

/// The magnitude from which on a scaled sum has lost no more than it may, when `small` of a block's numbers have lost bits:
/// each 2^-25 of at most 2^15, of which 2^-12 may be lost.
__device__ __forceinline__ float least_sum(const UnitChannel& channel, float small) {
  return fminf(channel.largest_loss, 4.0F * small) + channel.of_weights;
}

inline constexpr int kUnitTarget = 14, kUnitSourceTarget = 12, kMostUnitExponent = 100;
/// In marked blocks: what weights and the bound of sums become.
inline constexpr int kMarkedWeightTarget = 40, kMarkedTarget = 100;

/// A power of two, and its inverse. Numbers whose largest is below 2^-100 are multiplied by 2^64 before.
struct BlockScale {
  static constexpr float kRaise = 0x1p64F;
  float by = 1, inverse = 1;
  bool is_raised = false;
  bool fits = true;  ///< else no scale keeps all factors and sums in range

  /// The largest magnitude, of these bits, becomes one from 2^target on.
  __device__ __forceinline__ BlockScale(std::uint32_t largest, int target) {
    if (largest == 0) return;
    is_raised = largest < static_cast<std::uint32_t>(127 - kMostUnitExponent) << 23;
    if (is_raised) largest = __float_as_uint(__uint_as_float(largest) * kRaise);
    const int exponent = static_cast<int>(largest >> 23) - 127;
    fits = exponent <= kMostUnitExponent;
    const int shift = fits ? target - exponent : 0;
    by = power_of_two(shift), inverse = power_of_two(-shift);
  }
  [[nodiscard]] __device__ __forceinline__ float raise() const { return is_raised ? kRaise : 1.0F; }
  /// The second factor of scaled sums, after `inverse`.
  [[nodiscard]] __device__ __forceinline__ float lower() const { return is_raised ? 1 / kRaise : 1.0F; }
  /// Whether numbers up to this magnitude are neither too large nor all small: half a source may be zeros.
  [[nodiscard]] __device__ __forceinline__ bool suits(std::uint32_t largest) const {
    const float scaled = __uint_as_float(largest) * raise() * by;
    return largest == 0 || (scaled >= 256.0F && scaled <= kLargestHalf);
  }
};

/// A power of two for numbers of tf32: their largest magnitude becomes one from 2^target on, if factors up to 2^126 do that.
/// Few are subnormal then, of which tf32 keeps few bits.
struct MarkedScale {
  float by;
  float inverse, lower;  ///< their product is the inverse; one is 1, so that scaled sums neither over- nor underflow

  __device__ __forceinline__ MarkedScale(float largest, int target) {
    const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
    const int shift = min(max(target - exponent, -126), 126);
    by = power_of_two(shift), inverse = power_of_two(-max(shift, 0)), lower = power_of_two(-min(shift, 0));
  }
};

/// The bits of the largest magnitudes of a block, in the shared memory that the biases of 16 bits have.
struct UnitLargest {
  std::uint32_t half[2], middle;  ///< of the source's halves
  int small[3];                   ///< how many numbers have lost bits: of the source, loaded again, of the middle
};

/// A warp's largest magnitude joins those of the others.
__device__ __forceinline__ void join_largest(std::uint32_t* all, float largest, int lane) {
  const std::uint32_t of_warp = __reduce_max_sync(0xffffffffU, __float_as_uint(largest));
  if (lane == 0) atomicMax(all, of_warp);
}

/// Scales and rounds numbers, and finds the smallest that is not zero.
struct ScaledWords {
  float scale;
  std::uint32_t least = 0xffffffffU;  ///< twice the bits of its magnitude, minus one: for zero it is the largest

  __device__ __forceinline__ explicit ScaledWords(float by) : scale(by) {}
  [[nodiscard]] __device__ __forceinline__ std::uint32_t operator()(float low, float high) {
    const float a = low * scale, b = high * scale;
    least = min(least, min((__float_as_uint(a) << 1) - 1, (__float_as_uint(b) << 1) - 1));
    const __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  /// The same; `rest` becomes the low parts.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t split(float low, float high, std::uint32_t& rest) {
    const std::uint32_t word = (*this)(low, high);
    rest = low_parts(low * scale, high * scale, *reinterpret_cast<const __half2*>(&word));
    return word;
  }
  /// Whether one has lost bits: it is below 2^-14.
  [[nodiscard]] __device__ __forceinline__ bool has_small() const { return least < kBound; }
  [[nodiscard]] __device__ __forceinline__ bool is_small(float value) const {
    return (__float_as_uint(value * scale) << 1) - 1 < kBound;
  }

 private:
  static constexpr std::uint32_t kBound = 2 * 0x38800000U - 1;
};

}  // namespace polyphase::cuda::tensor_core
