#pragma once
// Stores a consumer's sums as rows of the output. Whole rows are assembled in shared memory and written by one bulk copy per
// row, from a sector (32 bytes) on.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/tiling.hpp"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// The rows of a tile: all phases of channel `row`. A staged row begins with up to 16 unused bytes, so that the tile's first
/// own element has the same alignment as in the tensor.
template <class T>
struct BulkRows {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  T* first;             // row 0, element 0 of the tile
  std::int64_t length;  // of a row
  int count;            // number that exists
  RowRange range;

  __device__ __forceinline__ BulkRows(const TapGemm& gemm, const BulkTiling& tiling, const TilePlace& place, T* out)
      : length(gemm.out_length), range(gemm, tiling, gemm.out_stride * place.position + gemm.out_origin) {
    const auto channel = static_cast<std::int64_t>(tiling.by_classes.divide(static_cast<std::uint32_t>(place.column)));
    first = out + ((place.n * gemm.G + place.g) * gemm.out_channels + channel) * length + gemm.out_stride * place.position +
            gemm.out_origin;
    count = static_cast<int>(min(static_cast<std::int64_t>(tiling.channels), gemm.out_channels - channel));
  }
  __device__ __forceinline__ T* row(int index) const { return first + index * length; }
  /// Whether every row of the tile begins at an even element.
  __device__ __forceinline__ bool is_even() const {
    return ((reinterpret_cast<std::uintptr_t>(first) / sizeof(T) | static_cast<std::uintptr_t>(length)) & 1) == 0;
  }
  /// Elements before a staged row's element 0.
  __device__ __forceinline__ int lead(int index) const {
    const auto place = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(first) / sizeof(T));
    return static_cast<int>((place + static_cast<std::uint32_t>(index) * static_cast<std::uint32_t>(length)) &
                            static_cast<std::uint32_t>(kVector - 1));
  }
};

/// Writes rows [begin, end) of a tile that meets no row's ends, in vectors of 16 bytes; half a warp per row if that is enough.
template <class T>
__device__ __forceinline__ void store_whole_bulk_rows(const BulkTiling& tiling, const BulkRows<T>& rows, const T* staging,
                                                      int begin, int end, int lane) {
  constexpr int kVector = BulkRows<T>::kVector;
  const RowRange& range = rows.range;
  const int vectors = range.length * static_cast<int>(sizeof(T)) / 16, lanes = vectors <= 16 ? 16 : 32;
  const int each_time = 32 / lanes, column = lane & (lanes - 1), own = begin + (lane >= lanes ? 1 : 0);
  const T* from = staging + own * tiling.out_pitch + column * kVector;
  T* to = rows.row(own) + column * kVector;
  const std::int64_t further = rows.length * each_time;
  const auto turn = static_cast<std::uint32_t>(rows.length * each_time) & range.mask;
  std::uint32_t shift = range.shift_of(rows.row(own));
#pragma unroll 1
  for (int first = begin; first < end; first += 4 * each_time) {
    uint4 value[4];
    T* place[4];
    int left = end - first - (own - begin);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t skipped = (shift + kVector - 1) / kVector * kVector;
      place[i] = to + shift;
      if (column < vectors && i * each_time < left) value[i] = *reinterpret_cast<const uint4*>(from + skipped);
      if (vectors > lanes && i * each_time < left) {
#pragma unroll 1
        for (int at = lanes; at + column < vectors; at += lanes)
          *reinterpret_cast<uint4*>(place[i] + at * kVector) = *reinterpret_cast<const uint4*>(from + skipped + at * kVector);
      }
      from += tiling.out_pitch * each_time;
      to += further;
      shift = (shift - turn) & range.mask;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (column < vectors && i * each_time < left) *reinterpret_cast<uint4*>(place[i]) = value[i];
  }
}

/// Writes warp `warp`'s rows from `staging` to the tensor; asynchronous if they are whole.
template <class T>
__device__ __forceinline__ void store_bulk_rows(const BulkTiling& tiling, const BulkRows<T>& rows, const T* staging, int warp,
                                                int lane) {
  const int each = (tiling.channels + 3) / 4, begin = warp * each, end = min(begin + each, rows.count);
  const RowRange& range = rows.range;
  if (range.is_whole) {
    if (!tiling.stores_bulk) return store_whole_bulk_rows<T>(tiling, rows, staging, begin, end, lane);
    const int own = begin + lane;
    if (own < end) {
      T* const to = rows.row(own);
      const auto shift = static_cast<int>(range.shift_of(to));
      ptx::bulk_store(to + shift, ptx::shared_address(staging + own * tiling.out_pitch + rows.lead(own) + shift),
                      static_cast<std::uint32_t>(range.length) * static_cast<std::uint32_t>(sizeof(T)));
    }
    return;
  }
#pragma unroll 1
  for (int own = begin; own < end; ++own) {
    T* const to = rows.row(own);
    const auto shift = static_cast<int>(range.shift_of(to));
    const T* from = staging + own * tiling.out_pitch + rows.lead(own);
    const int low = max(shift, range.begins), high = min(shift + range.length, range.ends);
    for (int at = low + lane; at < high; at += 32) to[at] = from[at];
  }
}

/// A consumer's finished sums of two rows, with bias and activation, as numbers of T; staging then multiplies them by 1 and
/// adds -0. Two parts stacked: they are in the high sums.
template <class T, bool kStacked, int kSums>
__device__ __forceinline__ void activate_bulk(const LightActivation& activation, float(&factor), float (&offsets)[2],
                                              float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int half = i / 2 % 2;
    if (kStacked && half == 1) continue;
    const float sum = kStacked ? fmaf(sums[i + 2], 1.0F / kLowScale, sums[i]) : sums[i];
    sums[i] = activation(static_cast<float>(static_cast<T>(fmaf(sum, factor, offsets[half]))));
    if constexpr (kStacked) sums[i + 2] = -0.0F;
  }
  factor = 1.0F;
  offsets[0] = offsets[1] = -0.0F;
}

/// Where a thread stages the sums of one column, and their factor and offset.
template <class T>
struct BulkColumn {
  T* to;                 // of position 0
  float factor, offset;  // sum*factor + offset
  int stride;
  __device__ __forceinline__ T value(float sum) const { return static_cast<T>(fmaf(sum, factor, offset)); }
  /// Stages positions `at` and the next. `is_paired`: they fill one aligned word, or two.
  template <bool kPaired>
  __device__ __forceinline__ void put(int at, float even, float odd) const {
    if constexpr (kPaired) {
      struct alignas(2 * sizeof(T)) Pair {
        T even, odd;
      };
      *reinterpret_cast<Pair*>(to + at) = Pair{value(even), value(odd)};
    } else {
      to[at * stride] = value(even);
      to[(at + 1) * stride] = value(odd);
    }
  }
};

}  // namespace polyphase::cuda::tensor_core
