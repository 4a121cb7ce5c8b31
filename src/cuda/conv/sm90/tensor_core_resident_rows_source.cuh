#pragma once
// How rows of the source come into shared memory as they are, and from there into the registers of wgmma
// (tensor_core_resident_rows.cuh).

#include <cstdint>
#include <type_traits>

#include "cuda/conv/sm90/operand.cuh"
#include "cuda/conv/sm90/ring.cuh"
#include "cuda/conv/sm90/tensor_core_resident_layout.cuh"
#include "cuda/conv/sm90/tensor_core_resident_rows_steps.hpp"
#include "cuda/conv/sm90/tensor_core_resident_source.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kRowCopiers = 64;  // threads that copy for a consumer

/// The source of a tile: row 0 at the tile's first element, and which elements from there lie inside a row.
template <class T>
struct RowTile {
  const T* base;
  int first, last;
  __device__ __forceinline__ RowTile(const TapGemm& form, const TilePlace& place, const T* source) {
    const std::int64_t e0 = place.position + form.source_origin;
    base = source + (place.n * form.G + place.g) * form.rows * form.source_length + e0;
    first = static_cast<int>(max(-e0, static_cast<std::int64_t>(-0x7fffffff)));
    last = static_cast<int>(min(form.source_length - e0, static_cast<std::int64_t>(0x7fffffff)));
  }
};

/// All steps of all tiles of a consumer, each row from the 16-byte boundary before it on; what lies outside the rows is zero.
/// Four threads share a row. Rows begin and end at whole words of 4 bytes.
template <class T, class RowLayout>
__device__ __forceinline__ void copy_rows(const TapGemm& form, const RowSteps& steps, const RowLayout& layout,
                                          const T* __restrict__ source, int pair, int thread) {
  constexpr int kBytes = static_cast<int>(sizeof(T));
  const int row = thread / 4, column = thread % 4;
  const std::int64_t further = kRowsOfStep * form.source_length * kBytes;
  const auto to = layout.ring + static_cast<std::uint32_t>(row * steps.pitch);
  Ring ring;
  for (Walk walk(steps, pair); walk.more(); walk.advance()) {
    const RowTile<T> tile(form, walk.place(steps), source);
    const T* begin = tile.base + row * form.source_length;
    const auto offset = static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) % 16), end = offset + steps.span * kBytes;
    const auto* from = reinterpret_cast<const unsigned char*>(begin) - offset;
    const bool inside = tile.first <= 0 && steps.span <= tile.last;
    auto rows = static_cast<int>(form.rows) - row;
    for (int step = 0; step < steps.count; ++step, rows -= kRowsOfStep, from += further) {
      const std::uint32_t own = to + static_cast<std::uint32_t>(ring.stage * steps.stage_bytes);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      if (inside && rows > 0) {
#pragma unroll 4
        for (int i = 16 * column; i < end; i += 64) ptx::copy_vector(own + static_cast<std::uint32_t>(i), from + i);
      } else {
        for (int i = offset / 4 * 4 + 4 * column; i < end; i += 16) {
          const int e = (i - offset) / kBytes;
          const bool exists = e >= tile.first && e < tile.last && rows > 0;
          ptx::copy_word_or_zero(own + static_cast<std::uint32_t>(i), exists ? static_cast<const void*>(from + i) : source,
                                 exists);
        }
      }
      ptx::copy_arrive(layout.full(ring.stage));
      ring.advance(steps.stages);
    }
  }
}

/// How a kernel's threads read rows: slot s of a warpgroup has positions 2s and 2s + 1 of each half of a tile, so that a tap's
/// elements are, but for one, those of the tap before. kReadsPairs: RowSteps::reads_pairs.
template <class Operand_, int kHalves_, int kTaps_, bool kReadsPairs_>
struct RowMode {
  using Operand = Operand_;
  static constexpr int kHalves = kHalves_, kTaps = kTaps_;
  static constexpr bool kReadsPairs = kReadsPairs_;
  static constexpr int kBytes = static_cast<int>(sizeof(typename Operand::Source));
  // Elements of a row for two positions; of 16 bits an even number.
  static constexpr int kWindow = kBytes == 2 && kReadsPairs ? (2 + kTaps) / 2 * 2 : 2 + kTaps - 1;
  static constexpr int kElements = kHalves * kWindow;
  static constexpr int kEarly = kHalves == 1 ? kElements : kWindow;  // that the first half needs
  /// The element that position h of half m reads at a tap.
  static constexpr int element(int m, int h, int tap) { return m * kWindow + h + tap; }
};

/// A thread's elements of a step as they are: rows 2q, 2q + 1, 2q + 8, 2q + 9; of 16 bits two in a word where they are read so.
template <class Mode>
struct RowRaw {
  using T = typename Mode::Operand::Source;
  static constexpr bool kWords = sizeof(T) == 2 && Mode::kReadsPairs;
  std::conditional_t<kWords, std::uint32_t, T> v[kWords ? (Mode::kElements + 1) / 2 : Mode::kElements][4];
};

/// The same converted, as wgmma takes them: pairs of rows.
template <class Mode>
struct RowWords {
  std::uint32_t v[Mode::kElements][Mode::Operand::kParts][2];
};

template <class Mode>
struct RowReader {
  using Operand = typename Mode::Operand;
  const RowSteps& steps;
  float scale;
  std::uint32_t least;     // of magnitudes that split exactly, doubled less one
  int position, lane_row;  // this thread's first ones
  int at[2] = {};          // bytes from a stage to this thread's first element, of rows 2q and 2q + 1
  Seen seen;

  __device__ __forceinline__ RowReader(const RowSteps& steps_, int exponent, int warp, int lane)
      : steps(steps_),
        scale(power_of_two(exponent)),
        least(2 * SplitRange(exponent).least - 1),
        position(2 * (warp * 8 + lane / 4)),
        lane_row(lane % 4 * 2) {}

  __device__ __forceinline__ void begin_tile(const TapGemm& form, const RowTile<typename Operand::Source>& tile) {
    const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(tile.base));
    const std::uint32_t length = static_cast<std::uint32_t>(form.source_length) * Mode::kBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      at[i] = (lane_row + i) * steps.pitch +
              static_cast<int>((address + static_cast<std::uint32_t>(lane_row + i) * length) & 15U) + position * Mode::kBytes;
    seen = Seen();
  }

  /// Bytes from a thread's first element to its element i.
  static constexpr int hop(int i) { return (i / Mode::kWindow * 64 + i % Mode::kWindow) * Mode::kBytes; }

  __device__ __forceinline__ void load(const unsigned char* stage, RowRaw<Mode>& to) const {
    using T = typename Operand::Source;
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      const unsigned char* from = stage + at[row % 2] + row / 2 * 8 * steps.pitch;
#pragma unroll
      for (int i = 0; i < Mode::kElements; ++i) {
        if constexpr (!Mode::kReadsPairs) {
          to.v[i][row] = *reinterpret_cast<const T*>(from + hop(i));
        } else if constexpr (sizeof(T) == 2) {
          if (i % 2 == 0) to.v[i / 2][row] = *reinterpret_cast<const std::uint32_t*>(from + hop(i));
        } else if (i % Mode::kWindow % 2 == 0) {
          if (i % Mode::kWindow + 1 < Mode::kWindow) {
            const float2 both = *reinterpret_cast<const float2*>(from + hop(i));
            to.v[i][row] = both.x;
            to.v[i + 1][row] = both.y;
          } else {
            to.v[i][row] = *reinterpret_cast<const float*>(from + hop(i));
          }
        }
      }
    }
  }

  /// The first or the second part of the conversion: high halves, then low ones; of one part the elements of the first two
  /// positions, then the others.
  template <int kTurn>
  __device__ __forceinline__ void convert(const RowRaw<Mode>& raw, RowWords<Mode>& to) {
    if constexpr (Operand::kParts == 2) {
      if constexpr (kTurn == 0) {
        convert_high<0, Mode::kElements>(raw, to);
        check(raw);
      } else {
        convert_low(raw, to);
      }
    } else {
      constexpr int kFirst = kTurn == 0 ? 0 : Mode::kEarly, kLast = kTurn == 0 ? Mode::kEarly : Mode::kElements;
      if constexpr (Operand::kScaled) {
        convert_high<kFirst, kLast>(raw, to);
        if constexpr (kTurn == 1) check(raw);
      } else {
        pair_up<kFirst, kLast>(raw, to);
      }
    }
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void convert_high(const RowRaw<Mode>& raw, RowWords<Mode>& to) {
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const __half2 high = __floats2half2_rn(raw.v[i][2 * k] * scale, raw.v[i][2 * k + 1] * scale);
        to.v[i][0][k] = *reinterpret_cast<const std::uint32_t*>(&high);
        seen.most = __hmax2_nan(seen.most, __habs2(high));
        seen.fewest = __hmin2(seen.fewest, __habs2(high));
      }
    }
  }

  __device__ __forceinline__ void convert_low(const RowRaw<Mode>& raw, RowWords<Mode>& to) const {
#pragma unroll
    for (int i = 0; i < Mode::kElements; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float2 back = __half22float2(*reinterpret_cast<const __half2*>(&to.v[i][0][k]));
        const __half2 low = __floats2half2_rn((raw.v[i][2 * k] * scale - back.x) * kLowScale,
                                              (raw.v[i][2 * k + 1] * scale - back.y) * kLowScale);
        to.v[i][1][k] = *reinterpret_cast<const std::uint32_t*>(&low);
      }
    }
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void pair_up(const RowRaw<Mode>& raw, RowWords<Mode>& to) const {
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if constexpr (RowRaw<Mode>::kWords) {
          to.v[i][0][k] = __byte_perm(raw.v[i / 2][2 * k], raw.v[i / 2][2 * k + 1], i % 2 == 0 ? 0x5410 : 0x7632);
        } else {
          const auto half = [&](int row) {
            return static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&raw.v[i][row]));
          };
          to.v[i][0][k] = half(2 * k) | half(2 * k + 1) << 16;
        }
      }
    }
  }

  /// Remembers what was zero or too small.
  __device__ __forceinline__ void check(const RowRaw<Mode>& raw) {
    const float2 fewest = __half22float2(seen.fewest);
    if (fewest.x >= kLeastNormalHalf && fewest.y >= kLeastNormalHalf) return;
    seen.fewest = __half2half2(__float2half(kLargestHalf));
#pragma unroll
    for (int i = 0; i < Mode::kElements; ++i) {
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        const std::uint32_t bits = __float_as_uint(raw.v[i][row]);
        seen.least = min(seen.least, bits + bits - 1);
      }
    }
  }

  /// Of the tile's elements that this thread has read.
  __device__ __forceinline__ Split worst() const {
    const float2 most = __half22float2(seen.most);
    if (!(most.x <= kLargestHalf && most.y <= kLargestHalf)) return Split::never;
    return seen.least < least ? Split::small : Split::exact;
  }
};

}  // namespace polyphase::cuda::tensor_core
