#pragma once
// The aux operand of kernel.cuh, stride 1: a residual or the result that gives a derivative, loaded into the staging.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/store.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace polyphase::cuda::tensor_core {

/// Starts to load the elements `distance` bytes from warp `warp`'s rows to where store_bulk_rows() will read them. In 16 bits
/// only for tiles with has_whole_sectors(), `distance` a multiple of 16.
template <class T>
__device__ __forceinline__ void load_aux_rows(const BulkTiling& tiling, const BulkRows<T>& rows, std::int64_t distance,
                                              const T* staging, int warp, int lane) {
  constexpr int kVector = BulkRows<T>::kVector;
  const int each = tiling.channels / 4, begin = warp * each, end = min(begin + each, rows.count);
  const RowRange& range = rows.range;
  const bool by_vectors = sizeof(T) == 2 || (range.is_whole && distance % 16 == 0);
  const int width = by_vectors ? kVector : 1;
#pragma unroll 1
  for (int own = begin; own < end; ++own) {
    const T* const row = rows.row(own);
    const auto shift = static_cast<int>(range.shift_of(row));
    const int low = max(shift, range.begins), high = min(shift + range.length, range.ends);
    const T* const from = Epilogue::aux(row, distance);
    const std::uint32_t to = ptx::shared_address(staging + own * tiling.out_pitch + rows.lead(own));
#pragma unroll 1
    for (int at = low + width * lane; at < high; at += width * 32) {
      const std::uint32_t place = to + static_cast<std::uint32_t>(at * static_cast<int>(sizeof(T)));
      if (by_vectors)
        ptx::copy_vector(place, from + at);
      else if constexpr (sizeof(T) == 4)
        ptx::copy_word(place, from + at);
    }
  }
  ptx::copy_commit();
}

/// Prefetches the lines that load_aux_rows() will read.
template <class T>
__device__ __forceinline__ void prefetch_aux_rows(const BulkTiling& tiling, const BulkRows<T>& rows, std::int64_t distance,
                                                  int warp, int lane) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(T)), kLines = kBulkPositions / kLine + 1;
  const int each = tiling.channels / 4, begin = warp * each, count = min(each, rows.count - begin);
#pragma unroll 1
  for (int i = lane; i < count * kLines; i += 32) {
    const int at = min(i % kLines * kLine, kBulkPositions - 1);
    if (at >= rows.range.begins && at < rows.range.ends)
      ptx::prefetch_l2(Epilogue::aux(rows.row(begin + i / kLines) + at, distance));
  }
}

/// stage_bulk() with an aux operand that lies where the outputs will be staged; `finish` comes from with_finish().
template <class T, bool kStacked, class Finish, int kSums>
__device__ __forceinline__ void stage_bulk_aux(const BulkTiling& tiling, const BulkRows<T>& rows, float factor,
                                               const float (&offsets)[2], const Finish& finish, T* staging, int warp, int lane,
                                               const float (&sums)[kSums]) {
  struct alignas(2 * sizeof(T)) Pair {
    T even, odd;
  };
  constexpr int kHalves = kStacked ? 1 : 2, kAtOnce = 4;  // a read of shared memory does not move before a write
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int column = kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half;
    T* const to = staging + column * tiling.out_pitch + rows.lead(column) + 2 * (lane % 4);
    const auto stage = [&](auto paired) {
      constexpr bool kPaired = decltype(paired)::value;
#pragma unroll
      for (int begin = 0; begin < kSums / 4; begin += kAtOnce) {
        Pair aux[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const T* const from = to + 8 * (begin + j);
          aux[j] = kPaired ? *reinterpret_cast<const Pair*>(from) : Pair{from[0], from[1]};
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int at = 4 * (begin + j) + 2 * half;
          float even = sums[at], odd = sums[at + 1];
          if constexpr (kStacked) {
            even = fmaf(sums[at + 2], 1.0F / kLowScale, even);
            odd = fmaf(sums[at + 3], 1.0F / kLowScale, odd);
          }
          const BulkColumn<T> put{to, 1.0F, -0.0F, 1};
          put.template put<kPaired>(8 * (begin + j), finish(fmaf(even, factor, offsets[half]), static_cast<float>(aux[j].even)),
                                    finish(fmaf(odd, factor, offsets[half]), static_cast<float>(aux[j].odd)));
        }
      }
    };
    if (rows.is_even())
      stage(std::true_type());
    else
      stage(std::false_type());
  }
}

}  // namespace polyphase::cuda::tensor_core
