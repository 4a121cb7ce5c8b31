#pragma once
// What the sampled numbers of x and y tell before a weight gradient: whether one scale for a tensor would leave too many
// weights to the wide kernel (wide.hpp), which then computes all of them.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/wgrad/recompute.cuh"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kSampleLoads = 16;  // of a thread
inline constexpr int kSampleWindow = 32;
inline constexpr int kSampleTeam = 4;                      // warps of a word
inline constexpr int kFarBelow = 14, kFarthestBelow = 22;  // powers of two
inline constexpr std::uint32_t kAllOfSample = 256U;        // a share of it has eight bits

/// What a team of warps sampled, packed: the exponents of its largest number and of its mean magnitude, biased by 127, and the
/// shares of numbers that are 2^kFarBelow and 2^kFarthestBelow below the mean. 0: all are 0.
struct WgradSampleWord {
  int mean;
  std::uint32_t far, farthest;
  __device__ __forceinline__ explicit WgradSampleWord(std::uint32_t word)
      : mean(static_cast<int>(word >> 8 & 0xffU)), far(word >> 16 & 0xffU), farthest(word >> 24) {}

  /// The word of a warp, from finite magnitudes as float bits and the largest of them.
  [[nodiscard]] static __device__ __forceinline__ std::uint32_t of(const std::uint32_t (&magnitudes)[kSampleLoads],
                                                                   std::uint32_t largest) {
    constexpr int kAll = kSampleLoads * kSampleWindow;
    float sum = 0;
#pragma unroll
    for (const std::uint32_t one : magnitudes) sum += __uint_as_float(one) * (1.0F / kAll);
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, lane);
    const std::uint32_t mean = __float_as_uint(sum) >> 23;
    // Zero becomes the largest number: it does not count.
    const auto below = [&](int powers) { return (max(static_cast<int>(mean) - powers, 1) << 23) - 1; };
    const auto far = static_cast<std::uint32_t>(below(kFarBelow));
    const auto farthest = static_cast<std::uint32_t>(below(kFarthestBelow));
    std::uint32_t both = 0;
#pragma unroll
    for (const std::uint32_t one : magnitudes) both += (one - 1 < far ? 1U : 0U) + (one - 1 < farthest ? 1U << 16 : 0U);
    both = __reduce_add_sync(0xffffffffU, both);
    const auto share = [](std::uint32_t count) { return min(count * kAllOfSample / kAll, 255U); };
    return largest >> 23 | max(mean, 1U) << 8 | share(both & 0xffffU) << 16 | share(both >> 16) << 24;
  }
  /// The word of two parts of a team: the largest of each.
  [[nodiscard]] static __device__ __forceinline__ std::uint32_t joined(std::uint32_t a, std::uint32_t b) {
    return __vmaxu4(a, b);
  }
};

/// What a warp finds in the sample of a tensor: each lane has two of its words.
struct WgradSample {
  std::uint32_t words[2];
  int exponent;  // of the scale
  int typical;   // exponent of the largest mean, scaled
  float small;   // the share of numbers below the normal halves, scaled

  __device__ __forceinline__ explicit WgradSample(const std::uint32_t* sample) {
    static_assert(kSampleWords == 64);
    const uint2 own = reinterpret_cast<const uint2*>(sample)[threadIdx.x % 32];
    words[0] = own.x, words[1] = own.y;
    const std::uint32_t largest = max(words[0] & 0xffU, words[1] & 0xffU);
    const std::uint32_t mean = max(words[0] >> 8 & 0xffU, words[1] >> 8 & 0xffU);
    exponent = scale_exponent(__reduce_max_sync(0xffffffffU, largest) << 23, kSourceTarget);
    typical = static_cast<int>(__reduce_max_sync(0xffffffffU, mean)) - 127 + exponent;
    const int least_normal = 127 - 14 - exponent;  // of the halves, biased
    std::uint32_t count = 0;
#pragma unroll
    for (const std::uint32_t word : words) {
      if (word == 0) continue;
      const WgradSampleWord one(word);
      const int above = one.mean - least_normal;
      // Two estimates: one for numbers that are spread around their mean, one for others.
      const std::uint32_t spread = kAllOfSample >> min(max(above, 0), 31);
      count += max(spread, above <= (kFarBelow + kFarthestBelow) / 2 ? one.far : one.farthest);
    }
    small = static_cast<float>(__reduce_add_sync(0xffffffffU, count)) * (1.0F / (kAllOfSample * kSampleWords));
  }

  /// Whether more than one of 32 samples is so quiet that its products with typical numbers of the other tensor are below
  /// 2^`least`.
  [[nodiscard]] __device__ __forceinline__ bool has_quiet(const WgradSample& other, float least) const {
    std::uint32_t both = 0;
#pragma unroll
    for (const std::uint32_t word : words) {
      if (word == 0) continue;
      const int mean = WgradSampleWord(word).mean - 127 + exponent;
      both += (static_cast<float>(mean + other.typical) < least ? 1U : 0U) + (1U << 16);
    }
    both = __reduce_add_sync(0xffffffffU, both);
    return (both & 0xffffU) * 32 > both >> 16;
  }
};

/// Whether so many weights would be suspect that the wide kernel computes all of them. By whole warps, after the sample is
/// there. A sum of n random products is about sqrt(n) times a product. The bound (least_safe_weight) counts the small numbers
/// of all channels of a tile, and sums cancel: one of 2^7 is that much smaller.
__device__ __forceinline__ bool is_mixed(const WgradScales* scales, const ConvProblem& problem, const WgradTiling& tiling) {
  constexpr float kMost = 8192, kCancels = 128;
  const WgradSample x(scales->x_sample), y(scales->y_sample);
  const auto channels = [](const WgradSide& side) { return static_cast<float>(min(8 * side.tile, side.channels)); };
  const float small = x.small * channels(tiling.swapped ? tiling.columns : tiling.rows) +
                      y.small * channels(tiling.swapped ? tiling.rows : tiling.columns);
  const float products = static_cast<float>(problem.N) * static_cast<float>(problem.L_in);
  const float least = log2f(small * sqrtf(products) * (kMost / kSafeOfSmall * kCancels));
  return small > 0 && (x.has_quiet(y, least) || y.has_quiet(x, least));
}

}  // namespace polyphase::cuda::tensor_core
