#pragma once
// The producers of the tensor-core weight gradient: from rows of x and y to operand tiles in shared memory.
//
// An item is 8 channels at one position. A thread has the same items in every step, so a table in shared memory holds their
// sources and destinations. A thread copies each of its items word by word into a ring of its own, several items ahead, and
// converts it from there. (Loads into registers would all wait for each other: ptxas gives loads that are waited for in another
// basic block one scoreboard.)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// What a thread does for one of its items in every step.
struct __align__(16) WgradItem {
  std::int64_t from;    // element, from channel 0 of the group at the step's first position
  std::int32_t within;  // the same, from the row's beginning
  std::uint32_t to;     // byte in the side's tile, a multiple of 16, plus the number of channels that exist; 0 of them: no item
  __device__ __forceinline__ std::uint32_t rows() const { return to & 15; }
  __device__ __forceinline__ std::uint32_t byte() const { return to & ~15U; }
};

__device__ __forceinline__ WgradItem make_item(const WgradSide& side, int first_block, int index) {
  const auto item = static_cast<std::uint32_t>(index);
  const std::uint32_t group = side.by_plane_window.divide(item);
  const std::uint32_t rest = item - group * side.by_plane_window.divisor;
  const std::uint32_t u = side.by_planes.divide(rest);
  const auto own = static_cast<int>(group * side.by_planes.divisor + rest - u * side.by_planes.divisor);
  const int block = first_block + own;
  if (own >= side.tile || block >= side.blocks) return {0, 0, 0};
  const int channel = block / side.planes * 8, plane = block % side.planes;
  const std::int64_t within = side.step * u + plane * side.plane_step;
  return {std::int64_t{channel} * side.length + within, static_cast<std::int32_t>(within),
          static_cast<std::uint32_t>(own * side.pitch + static_cast<int>(u)) * 16 +
              static_cast<std::uint32_t>(min(8, side.channels - channel))};
}

/// One side at one step.
template <class T>
struct WgradSource {
  const T* base;        // of the group's channel 0 at the step's first position
  std::int64_t length;  // of a row
  int first, last;      // values of WgradItem::within inside the row
  bool inside;          // all of the window is
};

/// A side in a block.
struct WgradOrigin {
  const void* tensor;   // an address that can always be read
  const void* base;     // of the group's channel 0 at position 0 of sample 0
  std::int64_t first;   // its place in the row
  std::int64_t chunk;   // elements from chunk to chunk
  std::int64_t sample;  // and from sample to sample
  std::int64_t length;  // of a row
  std::int64_t reach;   // of a window, less one
};

template <class T>
__device__ __forceinline__ WgradOrigin origin_of(const WgradSide& side, const T* tensor, std::int64_t groups, int group,
                                                 int shift, int chunk) {
  const std::int64_t first = side.start + side.start_per_shift * shift;
  return {tensor,
          tensor + std::int64_t{group} * side.channels * side.length + first,
          first,
          side.step * chunk,
          groups * side.channels * side.length,
          side.length,
          side.step * (side.window - 1) + (side.planes - 1) * side.plane_step};
}

template <class T>
__device__ __forceinline__ WgradSource<T> source_at(const WgradOrigin& origin, int n, int chunk) {
  constexpr std::int64_t kFar = 0x7fffffff;
  const std::int64_t along = origin.chunk * chunk, e = origin.first + along;
  return {static_cast<const T*>(origin.base) + n * origin.sample + along, origin.length, static_cast<int>(max(-e, -kFar)),
          static_cast<int>(max(-kFar, min(origin.length - e, kFar))), e >= 0 && e + origin.reach < origin.length};
}

/// The range of a thread's numbers that halves cannot hold.
struct WgradRange {
  __half2 most;         // the largest magnitude; NaN stays
  std::uint32_t small;  // count of those below the normal halves
};

template <class Operand>
struct WgradFill {
  using T = typename Operand::Source;

  /// The word that holds an element; 16-bit numbers are two per word, at a multiple of 4 bytes.
  __device__ static __forceinline__ const void* word_of(const T* element) {
    if constexpr (sizeof(T) == 4) return element;
    return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(element) & ~std::uintptr_t{3});
  }

  /// Starts to copy an item to `to`, channels kWgradProducers words apart. Returns whether it begins with the upper half of a
  /// word.
  __device__ static __forceinline__ bool fetch(const WgradItem& item, const WgradSource<T>& source, const void* readable,
                                               std::uint32_t to) {
    const T* from = source.base + item.from;
    if (source.inside && item.rows() == 8) {
#pragma unroll
      for (int c = 0; c < 8; ++c) ptx::copy_word(to + c * kWgradProducers * 4, word_of(from + c * source.length));
    } else if (item.rows() != 0) {
      const bool inside = item.within >= source.first && item.within < source.last;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const bool exists = inside && c < static_cast<int>(item.rows());
        ptx::copy_word_or_zero(to + c * kWgradProducers * 4,
                               exists ? word_of(from + c * source.length) : word_of(static_cast<const T*>(readable)), exists);
      }
    }
    return sizeof(T) == 2 && (reinterpret_cast<std::uintptr_t>(from) & 2) != 0;
  }

  /// Splits eight numbers, two per word, into parts; `least` becomes the least magnitude. For words of 16-bit numbers `pick`
  /// selects the pair from two words.
  __device__ static __forceinline__ void split(const std::uint32_t (&words)[8], float scale, std::uint32_t pick,
                                               std::uint32_t (&high)[4], std::uint32_t (&low)[4], WgradRange& range,
                                               __half2& least) {
    if constexpr (Operand::kScaled) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float a = __uint_as_float(words[2 * i]) * scale, b = __uint_as_float(words[2 * i + 1]) * scale;
        const __half2 h = __floats2half2_rn(a, b);
        high[i] = *reinterpret_cast<const std::uint32_t*>(&h);
        range.most = __hmax2_nan(range.most, __habs2(h));
        least = __hmin2(least, __habs2(h));
        if constexpr (Operand::kParts == 2) {
          const float2 back = __half22float2(h);
          const __half2 l = __floats2half2_rn((a - back.x) * kLowScale, (b - back.y) * kLowScale);
          low[i] = *reinterpret_cast<const std::uint32_t*>(&l);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) high[i] = __byte_perm(words[2 * i], words[2 * i + 1], pick);
    }
  }

  /// Whether a number may be below the normal halves.
  __device__ static __forceinline__ bool is_small(__half2 least) {
    if constexpr (!Operand::kScaled) return false;
    return !__hbgt2(least, __float2half2_rn(kLeastNormalHalf));
  }

  /// The same, and counts the numbers below the normal halves.
  __device__ static __forceinline__ void convert(const std::uint32_t (&words)[8], float scale, std::uint32_t pick,
                                                 std::uint32_t (&high)[4], std::uint32_t (&low)[4], WgradRange& range) {
    __half2 least = __float2half2_rn(1.0F);
    split(words, scale, pick, high, low, range, least);
    if (is_small(least)) count_small(words, scale, range);
  }

  /// Writes the 16 bytes of each part of an item.
  __device__ static __forceinline__ void convert_item(const std::uint32_t (&words)[8], std::uint32_t pick, float scale,
                                                      unsigned char* to, int part_bytes, WgradRange& range) {
    std::uint32_t high[4], low[4];
    convert(words, scale, pick, high, low, range);
    *reinterpret_cast<uint4*>(to) = make_uint4(high[0], high[1], high[2], high[3]);
    if constexpr (Operand::kParts == 2) *reinterpret_cast<uint4*>(to + part_bytes) = make_uint4(low[0], low[1], low[2], low[3]);
  }

  /// The same for words that are kWgradProducers apart. Rows of odd length begin in the other half of a word.
  __device__ static __forceinline__ void convert_words(const std::uint32_t* from, bool upper, bool odd_length, float scale,
                                                       unsigned char* to, int part_bytes, WgradRange& range) {
    std::uint32_t words[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) words[c] = from[c * kWgradProducers];
    const std::uint32_t pick = (upper ? 0x32U : 0x10U) | (upper != odd_length ? 0x7600U : 0x5400U);
    convert_item(words, pick, scale, to, part_bytes, range);
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

}  // namespace polyphase::cuda::tensor_core
