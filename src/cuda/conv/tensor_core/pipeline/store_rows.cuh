#pragma once
// Writes rows of the output from a warp's staging in shared memory, each from a sector (32 bytes) on: a sector written in two
// pieces costs as much as several whole ones.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

/// The type of a staged output: 16-bit numbers are already rounded.
template <class T>
using Staged = std::conditional_t<sizeof(T) == 2, T, float>;

/// The part of a tile's rows that the tile itself writes, in elements from the tile's first.
struct RowRange {
  int begins, ends;    // of the row
  int length;          // elements of the tile, from its first sector on
  std::uint32_t mask;  // elements in a sector, less one; 0: tiles do not overlap
  bool is_whole;       // the tile does not meet the ends of a row

  __device__ RowRange(const TapGemm& gemm, const Tiling& tiling, std::int64_t t0) {
    const auto stride = static_cast<int>(gemm.out_stride);
    begins = static_cast<int>(max(-t0, static_cast<std::int64_t>(0)));
    ends =
        static_cast<int>(max(min(gemm.out_length - t0, static_cast<std::int64_t>(0x7fffffff)), static_cast<std::int64_t>(0)));
    length = stride * tiling.position_step;
    mask = static_cast<std::uint32_t>(tiling.aligned - 1);
    is_whole = begins == 0 && ends >= stride * tiling.positions;
  }
  /// Elements from `row` to the next sector.
  template <class T>
  __device__ __forceinline__ std::uint32_t shift_of(const T* row) const {
    return (0U - static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(row) / sizeof(T))) & mask;
  }
};

/// Calls visit(row, element) for a lane's 16-byte vectors of kRows rows of kN elements; neighbouring lanes have neighbouring
/// vectors.
template <class T, int kN, int kRows, class Visit>
__device__ __forceinline__ void visit_vectors(int lane, const Visit& visit) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T)), kOfRow = kN / kVector;
#pragma unroll
  for (int i = 0; i < kRows * kOfRow / 32; ++i) {
    const int vector = lane + 32 * i;
    visit(kOfRow >= 32 ? 32 * i / kOfRow : vector / kOfRow, vector % kOfRow * kVector);
  }
}

/// Writes the first `rows` of kRows rows of a tile, stride 1, with has_whole_sectors().
template <class T, int kN, int kPitch, int kRows>
__device__ __forceinline__ void store_vectors(const RowRange& range, std::int64_t row_length, int rows,
                                              const Staged<T>* staging, int lane, T* __restrict__ to) {
  constexpr int kBytes = kN * static_cast<int>(sizeof(T));
  constexpr int kVectors = kBytes > 512 ? 2 : 4,
                kAtOnce = kVectors * 512 / kBytes;  // rows per lane: as many as there are registers for
  static_assert(kRows % kAtOnce == 0 && sizeof(Staged<T>) == sizeof(T));
#pragma unroll
  for (int first = 0; first < kRows; first += kAtOnce) {
    uint4 values[kVectors];
    int i = 0;
    visit_vectors<T, kN, kAtOnce>(
        lane, [&](int row, int at) { values[i++] = *reinterpret_cast<const uint4*>(staging + row * kPitch + at); });
    i = 0;
    visit_vectors<T, kN, kAtOnce>(lane, [&](int row, int at) {
      const uint4 value = values[i++];
      if (first + row < rows && at >= range.begins && at < range.ends)
        *reinterpret_cast<uint4*>(to + row * row_length + at) = value;
    });
    staging += kAtOnce * kPitch;
    to += kAtOnce * row_length;
  }
}

/// Writes kRows rows of a tile that meets no row's ends, stride 1. Lanes take neighbouring 4-byte words.
template <class T, int kN, int kPitch, int kRows>
__device__ __forceinline__ void store_whole_rows(const RowRange& range, std::int64_t row_length, const Staged<T>* staging,
                                                 int lane, T* __restrict__ to) {
  using Word = std::conditional_t<sizeof(T) == 2, std::uint32_t, float>;
  constexpr int kWidth = static_cast<int>(sizeof(Word) / sizeof(T)), kPieces = kN / (32 * kWidth);
  std::uint32_t shift = range.shift_of(to);
  const std::uint32_t turn = static_cast<std::uint32_t>(row_length) & range.mask;
  const bool has_last = kWidth * (lane + 32 * (kPieces - 1)) < range.length;
  staging += kWidth * lane;
  to += kWidth * lane;
#pragma unroll 4
  for (int row = 0; row < kRows; ++row) {
    const Staged<T>* from = staging + shift;
    Word* own = reinterpret_cast<Word*>(to + shift);
    Word value[kPieces] = {};
    // The words after a row's end belong to another warp.
    if (kWidth == 1 || shift % 2 == 0) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        if (i < kPieces - 1 || has_last) value[i] = reinterpret_cast<const Word*>(from)[32 * i];
    } else if constexpr (kWidth == 2) {
      const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        if (i < kPieces - 1 || has_last) value[i] = halves[64 * i] | static_cast<std::uint32_t>(halves[64 * i + 1]) << 16;
    }
#pragma unroll
    for (int i = 0; i < kPieces - 1; ++i) own[32 * i] = value[i];
    if (has_last) own[32 * (kPieces - 1)] = value[kPieces - 1];
    staging += kPitch;
    to += row_length;
    shift = (shift - turn) & range.mask;
  }
}

/// The same of any rows of stride 1.
template <class T, int kPitch>
__device__ __forceinline__ void store_edge_rows(const RowRange& range, std::int64_t row_length, int rows,
                                                const Staged<T>* staging, int lane, T* __restrict__ to) {
  for (int row = 0; row < rows; ++row) {
    const auto shift = static_cast<int>(range.shift_of(to));
    const int low = max(shift, range.begins), high = min(shift + range.length, range.ends);
    for (int at = low + lane; at < high; at += 32) to[at] = static_cast<T>(staging[row * kPitch + at]);
    to += row_length;
  }
}

/// Whole channels of a tile that meets no row's ends, strides that divide 32: a lane keeps its phase. `classes` of the phases
/// have taps, the others are `empty`.
template <class T, int kPitch>
__device__ __forceinline__ void store_whole_phases(const RowRange& range, int stride, int classes, int channels,
                                                   std::int64_t row_length, const T* __restrict__ bias,
                                                   const Epilogue& epilogue, const Staged<T>* staging, int lane,
                                                   T* __restrict__ to) {
  constexpr int kItems = 8;
  const int per_piece = 32 / stride, place = 31 - __clz(stride);
  std::uint32_t shift = range.shift_of(to);
  const std::uint32_t turn = static_cast<std::uint32_t>(row_length) & range.mask;
  for (int channel = 0; channel < channels; ++channel) {
    const int t = static_cast<int>(shift) + lane, p = t >> place, r = t & (stride - 1);
    const bool has = r < classes;
    const Staged<T>* from = staging + (has ? r * kPitch + p : 0);
    auto empty = static_cast<Staged<T>>(0.0F);
    if (!has && bias != nullptr) empty = static_cast<Staged<T>>(epilogue.apply(static_cast<float>(bias[channel])));
    T* own = to + t;
    for (int done = 0; done < range.length; done += 32 * kItems, from += kItems * per_piece) {
      Staged<T> value[kItems];
#pragma unroll
      for (int j = 0; j < kItems; ++j) value[j] = has && done + 32 * j < range.length ? from[j * per_piece] : empty;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if (done + 32 * j + lane < range.length) own[done + 32 * j] = static_cast<T>(value[j]);
      }
    }
    staging += classes * kPitch;
    to += row_length;
    shift = (shift - turn) & range.mask;
  }
}

/// One row of all phases of a channel, which are neighbours in it; `filled` of them have taps, the others are `empty`.
template <class T, int kPitch>
__device__ __forceinline__ void store_phases(const RowRange& range, const FastDivide& by_stride, int filled, Staged<T> empty,
                                             const Staged<T>* staging, int lane, T* __restrict__ to) {
  constexpr int kItems = 4;
  const auto shift = static_cast<int>(range.shift_of(to)), stride = static_cast<int>(by_stride.divisor);
  const auto step_p = static_cast<int>(by_stride.divide(32)), step_r = 32 - step_p * stride;
  int t = shift + lane;
  auto p = static_cast<int>(by_stride.divide(static_cast<std::uint32_t>(t)));
  int r = t - p * stride;
  T* own = to + t;
  const int low = max(shift, range.begins), high = min(shift + range.length, range.ends);
  for (; t < high; t += 32 * kItems, own += 32 * kItems) {
    Staged<T> value[kItems];
    bool exists[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      exists[j] = t + 32 * j >= low && t + 32 * j < high;
      value[j] = empty;
      if (exists[j] && r < filled) value[j] = staging[r * kPitch + p];
      p += step_p;
      r += step_r;
      if (r >= stride) r -= stride, ++p;
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      if (exists[j]) own[32 * j] = static_cast<T>(value[j]);
    }
  }
}

/// Writes the first `rows` of kRows rows of a tile, stride 1, beginning at `to`. kMayBeWhole: has_whole_sectors() may be true.
template <class T, int kN, int kPitch, int kRows, bool kMayBeWhole>
__device__ __forceinline__ void store_plain_rows(const TapGemm& gemm, const Tiling& tiling, const RowRange& range, int rows,
                                                 const Staged<T>* staging, int lane, T* __restrict__ to) {
  if constexpr (kMayBeWhole) {
    if (tiling.has_whole_sectors()) return store_vectors<T, kN, kPitch, kRows>(range, gemm.out_length, rows, staging, lane, to);
  }
  if (range.is_whole && rows == kRows) return store_whole_rows<T, kN, kPitch, kRows>(range, gemm.out_length, staging, lane, to);
  return store_edge_rows<T, kPitch>(range, gemm.out_length, rows, staging, lane, to);
}

/// Writes kRows columns of a warp from its staging, where they are finished; `column` and `position` are the first.
template <class T, int kN, int kPitch, int kRows, bool kMayBeWhole>
__device__ __forceinline__ void store_rows(const TapGemm& gemm, const Tiling& tiling, std::int64_t row_of_sample,
                                           std::int64_t column, std::int64_t position, const T* __restrict__ bias,
                                           std::int64_t first_bias, const Epilogue& epilogue, const Staged<T>* staging,
                                           int lane, T* __restrict__ out) {
  const int rows = static_cast<int>(min(static_cast<std::int64_t>(kRows), gemm.columns - column));
  if (rows <= 0) return;
  const std::int64_t t0 = gemm.out_stride * position + gemm.out_origin;
  const RowRange range(gemm, tiling, t0);
  if (gemm.out_stride == 1) {
    T* to = out + (row_of_sample + column) * gemm.out_length + t0;
    return store_plain_rows<T, kN, kPitch, kRows, kMayBeWhole>(gemm, tiling, range, rows, staging, lane, to);
  }
  const int classes = static_cast<int>(gemm.classes), g = static_cast<int>(gemm.out_gcd);
  const auto stride = static_cast<int>(gemm.out_stride), class_step = static_cast<int>(gemm.out_class_step);
  const std::int64_t channel0 = tiling.by_classes.divide(static_cast<std::uint32_t>(column));
  T* to = out + (row_of_sample + channel0) * gemm.out_length + t0;
  const T* own_bias = bias + first_bias + channel0;
  int first = static_cast<int>(column - channel0 * classes);
  if (range.mask != 0 && range.is_whole && first == 0 && rows == kRows && kRows % classes == 0 && 32 % stride == 0)
    return store_whole_phases<T, kPitch>(range, stride, classes, kRows / classes, gemm.out_length,
                                         bias != nullptr ? own_bias : nullptr, epilogue, staging, lane, to);
  for (int row = 0; row < rows;) {
    const int here = min(classes - first, rows - row);
    // The block with a channel's last class also writes the phases that no tap reaches.
    const int slots = (first + here == classes ? static_cast<int>(gemm.phase_classes) - first : here) * g;
    auto empty = static_cast<Staged<T>>(0.0F);
    if (slots > here && bias != nullptr) empty = static_cast<Staged<T>>(epilogue.apply(static_cast<float>(*own_bias)));
    const Staged<T>* from = staging + row * kPitch;
    if (range.mask != 0 && slots == stride) {
      store_phases<T, kPitch>(range, tiling.by_stride, here, empty, from, lane, to);
    } else {
      const auto shift = static_cast<int>(range.shift_of(to));
      const bool overlap = range.mask != 0;
      const int low = overlap ? max(shift, range.begins) : range.begins;
      const int high = overlap ? min(shift + range.length, range.ends) : range.ends;
      const int step_p = 32 / slots, step_r = 32 - step_p * slots;
      int p = lane / slots, r = lane - p * slots;
      while (p < tiling.positions) {
        const int a = g == 1 ? r : static_cast<int>(tiling.by_gcd.divide(static_cast<std::uint32_t>(r)));
        const int b = r - a * g, t = stride * p + (first + a) * class_step + b;
        if (t >= low && t < high) to[t] = static_cast<T>(b == 0 && a < here ? from[a * kPitch + p] : empty);
        p += step_p;
        r += step_r;
        if (r >= slots) r -= slots, ++p;
      }
    }
    row += here;
    first = 0;
    to += gemm.out_length;
    ++own_bias;
  }
}

}  // namespace polyphase::cuda::tensor_core
