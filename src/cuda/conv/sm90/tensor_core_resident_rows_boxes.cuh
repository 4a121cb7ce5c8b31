#pragma once
// How a tile of f32 whose rows begin at different places modulo a sector of 32 bytes is written: through shared memory and
// tensor maps of the rows that begin alike, each row from a sector on. The copies go on while the next tile is multiplied.

#include <cstdint>

#include "cuda/conv/sm90/tensor_core_resident_rows_maps.hpp"
#include "cuda/conv/sm90/tensor_core_resident_rows_steps.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kBoxWidth = 128 - 8;  // positions of a tile less a sector
inline constexpr int kBoxBytes = kBoxColumns * kBoxWidth * 4;

/// Elements from t0 to the window of a row of class `own`.
__device__ __forceinline__ int box_shift(const StoreMaps& maps, int own, int t0) { return -(t0 + maps.offset[own]) & 7; }

/// What a thread stages: columns 2q and 2q + 1 of every eight, two positions of each half of the tile.
struct BoxPlace {
  int at[2];       // bytes from the staging, of each column's first pair
  bool has[2][2];  // whether the window of the column's row has the thread's pair of a half
  __device__ __forceinline__ BoxPlace(const RowSteps& steps, const StoreMaps& maps, int row, int t0, int position, int lane) {
    const int classes = steps.store_classes, place = 31 - __clz(classes);
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int column = 2 * (lane % 4) + b, local = column & (classes - 1);
      const int from = position - box_shift(maps, (row + local) & (classes - 1), t0);
      at[b] = ((local * (kBoxColumns >> place) + (column >> place)) * kBoxWidth + from) * 4;
      has[b][0] = from >= 0;
      has[b][1] = from + 64 < kBoxWidth;
    }
  }
};

/// Sends what is staged: a box of each class, `row` being the first of the rows.
__device__ __forceinline__ void send_boxes(const RowSteps& steps, const StoreMaps& maps, int row, int t0,
                                           std::uint32_t staging) {
  const int classes = steps.store_classes, place = 31 - __clz(classes);
  for (int local = 0; local < classes; ++local, ++row) {
    const int own = row & (classes - 1);
    ptx::tensor_store(&maps.map[own], t0 + maps.offset[own] + box_shift(maps, own, t0), row >> place, 0,
                      staging + static_cast<std::uint32_t>(local * (kBoxBytes >> place)));
  }
  ptx::bulk_commit();
}

/// A tile that lies inside its rows, of which `row` is the first of all and t0 the tile's first element.
template <int kN>
__device__ __forceinline__ void store_boxes(const float (&sums)[2][kN / 2], float scale, const float* biases,
                                            const RowSteps& steps, const StoreMaps& maps, std::int64_t row, std::int64_t t0,
                                            int position, int thread, int barrier, unsigned char* staging) {
  const int lane = thread % 32, first_row = static_cast<int>(row), first_element = static_cast<int>(t0);
  const int further = (8 * kBoxWidth * 4) >> (31 - __clz(steps.store_classes));  // bytes from a column to the eighth behind it
  const BoxPlace place(steps, maps, first_row, first_element, position, lane);
  biases += 2 * (lane % 4);
#pragma unroll
  for (int pass = 0; pass < kN / kBoxColumns; ++pass) {
    if (thread == 0) ptx::bulk_wait_read();
    ptx::named_barrier(barrier, 128);
#pragma unroll
    for (int i = 0; i < kBoxColumns / 8; ++i) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int group = kBoxColumns / 8 * pass + i;
        const float offset = biases[8 * group + b];
        unsigned char* to = staging + place.at[b] + i * further;
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const float* pair = &sums[m][4 * group + b];
          const float2 value = make_float2(fmaf(pair[0], scale, offset), fmaf(pair[2], scale, offset));
          if (place.has[b][m]) *reinterpret_cast<float2*>(to + 256 * m) = value;
        }
      }
    }
    ptx::fence_async_shared();
    ptx::named_barrier(barrier, 128);
    if (thread == 0) send_boxes(steps, maps, first_row + kBoxColumns * pass, first_element, ptx::shared_address(staging));
  }
}

}  // namespace polyphase::cuda::tensor_core
