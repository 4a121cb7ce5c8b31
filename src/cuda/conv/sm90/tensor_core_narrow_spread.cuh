#pragma once
// From a consumer's sums to rows where every second output is a bias: stride 2, taps for one phase only.
//
// Two neighbouring sums of a thread and a bias behind each are four outputs, a vector. Rows begin anywhere in a vector of the
// tensor, so it takes the bias before a sum instead of behind it at an odd place, and the second sum of its own pair and the
// first one of the next from two on. A warp's rows lie in its own part of the staging, from their first sector on.

#include <cstdint>

#include "cuda/conv/sm90/tensor_core_narrow_store.cuh"

namespace polyphase::cuda::tensor_core {

/// Which vectors of a row a thread makes: four lanes have neighbouring ones, lane `quad` those at quad, quad + 4...
template <class T>
struct SpreadRow {
  static constexpr int kVector = 4;  // elements
  float bias;
  T* staged;        // the thread's first vector
  int left;         // vectors of the row from there on
  bool is_odd;      // bias before sum
  bool is_late;     // the second sum of a pair, then the next pair's first
  bool is_ahead;    // its first vector lies before the row's first sector: it begins with its second
  bool sends_next;  // what the lane before it needs belongs to this lane's next vector

  /// `shift`: elements of the tile before the first sector; `length`: of the row from there on, which is to lie at `to`.
  __device__ __forceinline__ SpreadRow(int shift, int length, float bias, int quad, T* to) : bias(bias) {
    const int lead = (shift + 1) % kVector - 1;  // elements before a vector, -1 to 2
    const int before = (shift - lead) / kVector;
    is_odd = (lead & 1) != 0;
    is_late = lead > 0;
    is_ahead = quad < before;
    sends_next = quad <= before;
    const int first = quad + (is_ahead ? 4 : 0) - before;
    staged = to + kVector * first;
    left = length / kVector - first;
  }
  __device__ __forceinline__ void put(int i, float first, float second) const {
    struct alignas(kVector * sizeof(T)) Vector {
      T of[kVector];
    };
    if (i == kNarrowPositions / 8 - 1 && 4 * i >= left) return;  // before it there are always some
    // Each element chosen for itself: no branch.
    *reinterpret_cast<Vector*>(staged +
                               16 * i) = {{static_cast<T>(is_odd ? bias : first), static_cast<T>(is_odd ? first : bias),
                                           static_cast<T>(is_odd ? bias : second), static_cast<T>(is_odd ? second : bias)}};
  }
};

/// A warp's sums as rows in its staging: sum*factor + offset of its column.
template <class T>
__device__ __forceinline__ void stage_spread(const NarrowSteps& steps, const NarrowRows<T>& rows, float factor,
                                             const float (&offsets)[2], T* staging, int warp, int lane,
                                             const float (&sums)[kNarrowPositions / 2]) {
  constexpr int kGroups = kNarrowPositions / 8;
  const int behind = (lane & ~3) | ((lane + 1) & 3);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = lane / 4 + 8 * half;
    const auto shift = static_cast<int>(rows.range.shift_of(rows.row(warp * kSpreadRows + own)));
    const SpreadRow<T> row(shift, rows.range.length, offsets[half], lane % 4, staging + own * steps.out_pitch);
    float even = fmaf(sums[2 * half], factor, offsets[half]), odd = fmaf(sums[2 * half + 1], factor, offsets[half]);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int next = 4 * min(i + 1, kGroups - 1) + 2 * half;
      const float next_even = fmaf(sums[next], factor, offsets[half]), next_odd = fmaf(sums[next + 1], factor, offsets[half]);
      const float after = __shfl_sync(0xffffffffU, row.sends_next ? next_even : even, behind);
      const float first = row.is_ahead ? next_even : even, second = row.is_ahead ? next_odd : odd;
      row.put(i, row.is_late ? second : first, row.is_late ? after : second);
      even = next_even;
      odd = next_odd;
    }
  }
}

/// A warp's rows from its staging to the tensor; asynchronous where they are whole.
template <class T>
__device__ __forceinline__ void store_spread(const NarrowSteps& steps, const NarrowRows<T>& rows, const T* staging, int warp,
                                             int lane) {
  const RowRange& range = rows.range;
  const int begin = warp * kSpreadRows, count = min(kSpreadRows, rows.count - begin);
  if (range.is_whole) {
    if (lane >= count) return;
    T* const to = rows.row(begin + lane);
    ptx::bulk_store(to + range.shift_of(to), ptx::shared_address(staging + lane * steps.out_pitch),
                    static_cast<std::uint32_t>(range.length) * static_cast<std::uint32_t>(sizeof(T)));
    return;
  }
#pragma unroll 1
  for (int own = 0; own < count; ++own) {
    T* const to = rows.row(begin + own);
    const auto shift = static_cast<int>(range.shift_of(to));
    const T* from = staging + own * steps.out_pitch - shift;
    const int low = max(shift, range.begins), high = min(shift + range.length, range.ends);
    for (int at = low + lane; at < high; at += 32) to[at] = from[at];
  }
}

}  // namespace polyphase::cuda::tensor_core
