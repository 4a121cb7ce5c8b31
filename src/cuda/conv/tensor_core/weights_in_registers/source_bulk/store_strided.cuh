#pragma once
// Stores a consumer's sums as rows in which every second output is a bias: stride 2, taps for one phase only.
//
// Two neighbouring sums of a thread, each followed by a bias, are four outputs: a vector. Rows begin anywhere in a vector of
// the tensor. At an odd place a vector takes the bias before a sum instead of after it; from place two on it takes the second
// sum of its own pair and the first of the next. A warp's rows are in its own part of the staging, from their first sector on.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/store.cuh"

namespace polyphase::cuda::tensor_core {

/// The vectors of a row that a thread assembles: four lanes have neighbouring ones; lane `quad` has quad, quad + 4...
template <class T>
struct SpreadRow {
  static constexpr int kVector = 4;  // elements
  float bias;
  T* staged;     // the place of vector `quad`
  int first;     // its index in the staged row
  int count;     // vectors of the row
  bool is_odd;   // bias before sum
  bool has_aux;  // the second sum of a pair, then the first of the next pair

  /// `shift`: elements of the tile before the row's own; `length`: of the row from there on; it is written to `to`.
  __device__ __forceinline__ SpreadRow(int shift, int length, float bias, int quad, T* to) : bias(bias) {
    const int lead = (shift + 1) % kVector - 1;  // elements before a vector, -1 to 2
    is_odd = (lead & 1) != 0;
    has_aux = lead > 0;
    first = quad - (shift - lead) / kVector;
    staged = to + kVector * first;
    count = length / kVector;
  }
  __device__ __forceinline__ void put(int i, float even, float odd) const {
    struct alignas(kVector * sizeof(T)) Vector {
      T of[kVector];
    };
    if (i == 0 && first < 0) return;
    if (i == kBulkPositions / 8 - 1 && first + 4 * i >= count) return;
    // Each element is selected by itself: no branch.
    *reinterpret_cast<Vector*>(staged + 16 * i) = {{static_cast<T>(is_odd ? bias : even), static_cast<T>(is_odd ? even : bias),
                                                    static_cast<T>(is_odd ? bias : odd), static_cast<T>(is_odd ? odd : bias)}};
  }
};

/// Stages half of a warp's sums (rows lane/4 of its eight): sum*factor + offset of its column.
template <class T>
__device__ __forceinline__ void stage_spread(const BulkTiling& tiling, const BulkRows<T>& rows, float factor, float offset,
                                             T* staging, int half, int warp, int lane,
                                             const float (&sums)[kBulkPositions / 2]) {
  constexpr int kGroups = kBulkPositions / 8;
  const int behind = (lane & ~3) | ((lane + 1) & 3), own = lane / 4 + 8 * half;
  const auto shift = static_cast<int>(rows.range.shift_of(rows.row(warp * kSpreadRows + own)));
  const SpreadRow<T> row(shift, rows.range.length, offset, lane % 4, staging + own * tiling.out_pitch);
  float even = fmaf(sums[2 * half], factor, offset), odd = fmaf(sums[2 * half + 1], factor, offset);
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int next = 4 * min(i + 1, kGroups - 1) + 2 * half;
    const float next_even = fmaf(sums[next], factor, offset), next_odd = fmaf(sums[next + 1], factor, offset);
    const float after = __shfl_sync(0xffffffffU, lane % 4 == 0 ? next_even : even, behind);
    row.put(i, row.has_aux ? odd : even, row.has_aux ? after : odd);
    even = next_even;
    odd = next_odd;
  }
}

/// Writes rows [begin, begin + 8) of a tile from a warp's staging to the tensor; asynchronous if they are whole.
template <class T>
__device__ __forceinline__ void store_spread(const BulkTiling& tiling, const BulkRows<T>& rows, const T* staging, int begin,
                                             int lane) {
  const RowRange& range = rows.range;
  const int count = min(kSpreadRows / 2, rows.count - begin);
  if (range.is_whole) {
    if (lane < count) {
      T* const to = rows.row(begin + lane);
      ptx::bulk_store(to + range.shift_of(to), ptx::shared_address(staging + lane * tiling.out_pitch),
                      static_cast<std::uint32_t>(range.length) * static_cast<std::uint32_t>(sizeof(T)));
    }
    return;
  }
#pragma unroll 1
  for (int own = 0; own < count; ++own) {
    T* const to = rows.row(begin + own);
    const auto shift = static_cast<int>(range.shift_of(to));
    const T* from = staging + own * tiling.out_pitch - shift;
    const int low = max(shift, range.begins), high = min(shift + range.length, range.ends);
    for (int at = low + lane; at < high; at += 32) to[at] = from[at];
  }
}

/// Writes a warp's sums as rows of the tensor, eight at a time: some are sent while others are staged.
template <class T>
__device__ __forceinline__ void stage_and_store_spread(const BulkTiling& tiling, const BulkRows<T>& rows, float factor,
                                                       const float (&offsets)[2], T* staging, int warp, int lane,
                                                       const float (&sums)[kBulkPositions / 2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    ptx::bulk_wait_read<1>();  // the previous tile's copies of these eight rows
    __syncwarp();
    stage_spread<T>(tiling, rows, factor, offsets[half], staging, half, warp, lane, sums);
    ptx::fence_async_shared();
    __syncwarp();
    store_spread<T>(tiling, rows, staging + half * (kSpreadRows / 2) * tiling.out_pitch,
                    warp * kSpreadRows + half * (kSpreadRows / 2), lane);
    ptx::bulk_commit();
  }
}

}  // namespace polyphase::cuda::tensor_core
