#pragma once
// From a consumer's sums to rows of the output: staged as boxes of the rows that begin alike modulo a sector, each from a
// sector on, which leave through tensor maps while the next tile is multiplied.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/both_in_shared/stationary/layout.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/maps.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// Rows of gemm_m are staged rows, whose classes follow each other: the column of one.
template <bool kHalf>
__device__ __forceinline__ int boxes_column(const BoxesSteps& steps, int row) {
  const int bits = (kHalf ? 5 : 6) - steps.store_bits;
  return (row & ((1 << bits) - 1)) << steps.store_bits | row >> bits;
}
/// Its shift.
template <bool kHalf>
__device__ __forceinline__ int boxes_shift(const BoxesSteps& steps, int row) {
  return steps.shift[row >> ((kHalf ? 5 : 6) - steps.store_bits)];
}

/// Where a thread stages the sums of one column, and what it makes of them.
struct BoxesColumn {
  std::uint32_t place;  // whole rows: whole_place()
  bool exists;
  float* to;  // of position 2q
  int shift;  // of its window
  float factor, offset;
  float* first;  // of the output row, position 2q
  int before;    // numbers of a row that lie before its first window
};

/// What becomes of sums without an activation.
struct BoxesPlain {
  __device__ __forceinline__ float operator()(float value) const { return value; }
};

/// The outputs of sums `at` and at + 1 of a thread; where they are stacked their low parts are the two behind.
template <bool kStacked, class Activation>
__device__ __forceinline__ float2 boxes_pair(const float (&sums)[kBoxesPositions / 2], int at, float factor, float offset,
                                             const Activation& activation) {
  float even = sums[at], odd = sums[at + 1];
  if constexpr (kStacked) {
    even = fmaf(sums[at + 2], 1.0F / kLowScale, even);
    odd = fmaf(sums[at + 3], 1.0F / kLowScale, odd);
  }
  return make_float2(activation(fmaf(even, factor, offset)), activation(fmaf(odd, factor, offset)));
}

/// Whether a row's window has position `own` of eight number i of a tile; rows that are no whole ones.
__device__ __forceinline__ bool is_in_window(int i, int own, int shift) {
  return i > 0 ? i < kBoxesWidth / 8 || own < shift : own >= shift;
}

/// Which of eight staged rows of a whole tile the sums of row `row` of eight are: four rows whose pairs are written at a time
/// lie in different banks, since the place of 16 bytes in a line has the bits of the line's number turned.
__device__ __forceinline__ int whole_row(int row) { return (row & 3) * 2 + (row >> 2); }

/// Bytes from the staging of whole rows, [line][row][32], to positions 2q and 2q + 1 of a row.
__device__ __forceinline__ int whole_place(int row, int q) { return row * 128 + (q / 2 ^ (row & 7)) * 16 + q % 2 * 8; }

/// The same of eight number i, from `to` on, which is that of the first. `further`: bytes from a line to the next.
__device__ __forceinline__ float2* whole_pair(unsigned char* memory, std::uint32_t to, int i, int further) {
  return reinterpret_cast<float2*>(memory + (to ^ static_cast<std::uint32_t>(i % 4 * 32)) + i / 4 * further);
}

/// Sums 2q and 2q + 1 of every eight positions of a whole row, from `to` on, which is one of whole_place(). `further`: as in
/// whole_pair().
template <bool kStacked, class Activation>
__device__ __forceinline__ void stage_whole(std::uint32_t to, float factor, float offset,
                                            const float (&sums)[kBoxesPositions / 2], int half, int further,
                                            unsigned char* memory, const Activation& activation) {
#pragma unroll
  for (int i = 0; i < kBoxesPositions / 8; ++i) {
    *whole_pair(memory, to, i, further) = boxes_pair<kStacked>(sums, 4 * i + 2 * half, factor, offset, activation);
  }
}

/// A whole tile at the end of rows that are no whole lines. `out`: of its first row.
__device__ __forceinline__ void store_whole(const TapGemm& form, const BoxesSteps& steps, int t0, const float* staging,
                                            float* out, int warp, int lane) {
#pragma unroll 1
  for (int row = warp; row < steps.columns; row += 4) {
    const float* from = staging + (lane / 8 * steps.columns + row) * kBoxesLine + (lane % 8 ^ (row & 7)) * 4;
    if (t0 + 4 * lane < static_cast<int>(form.out_length))
      *reinterpret_cast<float4*>(out + row * form.out_length + t0 + 4 * lane) = *reinterpret_cast<const float4*>(from);
  }
}

/// Sums 2q and 2q + 1 of every eight positions: of number `half` of a thread's columns.
template <BoxesRows kRows, bool kStacked, class Activation>
__device__ __forceinline__ void stage_boxes(const BoxesColumn& column, const float (&sums)[kBoxesPositions / 2], int half,
                                            int q, const Activation& activation) {
#pragma unroll
  for (int i = 0; i < kBoxesPositions / 8; ++i) {
    const float2 pair = boxes_pair<kStacked>(sums, 4 * i + 2 * half, column.factor, column.offset, activation);
    const float even = pair.x, odd = pair.y;
    if constexpr (kRows == BoxesRows::pairs) {
      if (is_in_window(i, 2 * q, column.shift)) *reinterpret_cast<float2*>(column.to + 8 * i) = make_float2(even, odd);
    } else {
      if (is_in_window(i, 2 * q, column.shift)) column.to[8 * i] = even;
      if (is_in_window(i, 2 * q + 1, column.shift)) column.to[8 * i + 1] = odd;
    }
  }
}

/// Of a row's first tile: what lies before the row's first window. `ahead`: numbers of earlier samples.
template <bool kStacked, class Activation>
__device__ __forceinline__ void store_before(const BoxesColumn& column, const float (&sums)[kBoxesPositions / 2], int half,
                                             int q, std::int64_t ahead, const Activation& activation) {
  const float2 pair = boxes_pair<kStacked>(sums, 2 * half, column.factor, column.offset, activation);
  float* const first = column.first + ahead;
  if (2 * q < column.before) first[0] = pair.x;
  if (2 * q + 1 < column.before) first[1] = pair.y;
}

/// What no box has of a tile that may hold the end of its rows: the last numbers of rows that do not end at 16 bytes. `out`: of
/// the tile's first row.
template <bool kHalf>
__device__ __forceinline__ void store_ends(const TapGemm& form, const BoxesSteps& steps, const BoxesMaps& maps, int t0,
                                           const float* staging, float* out, int thread) {
  const auto length = static_cast<int>(form.out_length);
#pragma unroll 1
  for (int row = thread; row < (kHalf ? 32 : 64); row += 128) {
    const int own = row >> ((kHalf ? 5 : 6) - steps.store_bits), column = boxes_column<kHalf>(steps, row);
    const int begin = t0 + steps.shift[own];
    if (column >= steps.columns) continue;
#pragma unroll 1
    for (int t = max(maps.store_numbers[own] - maps.store_offset[own], begin); t < min(length, begin + kBoxesWidth); ++t)
      out[column * form.out_length + t] = staging[row * kBoxesWidth + t - begin];
  }
}

/// One thread of each of four warps: sends what is staged of a tile.
template <BoxesRows kRows, bool kHalf>
__device__ __forceinline__ void send_boxes(const TapGemm& form, const BoxesSteps& steps, const BoxesMaps& maps, int row, int t0,
                                           std::uint32_t staging, int warp) {
  constexpr int kSlots = kHalf ? 32 : 64;
  if constexpr (kRows == BoxesRows::whole) {
    if (warp != 0) return;
    ptx::tensor_store(&maps.store[0], 0, row, t0 / kBoxesLine, staging);
  } else {
    const auto bytes = static_cast<std::uint32_t>((kSlots >> steps.store_bits) * kBoxesWidth * 4);
#pragma unroll 1
    for (int own = warp; own < 1 << steps.store_bits; own += 4) {
      const int begin = t0 + steps.shift[own] + maps.store_offset[own];
      if (begin < maps.store_numbers[own])
        ptx::tensor_store(&maps.store[own], begin, row >> steps.store_bits, 0,
                          staging + static_cast<std::uint32_t>(own) * bytes);
    }
  }
  ptx::bulk_commit();
}

/// One thread: brings what lies beside a tile's outputs to where they will be staged. Of tiles at their rows' ends see
/// bring_ends().
template <BoxesRows kRows, bool kHalf>
__device__ __forceinline__ void bring_boxes(const BoxesSteps& steps, const BoxesBeside& maps, int row, int t0,
                                            std::uint32_t staging, std::uint32_t barrier) {
  constexpr int kSlots = kHalf ? 32 : 64, kLength = kRows == BoxesRows::whole ? kBoxesPositions : kBoxesWidth;
  ptx::mbarrier_arrive_expect(barrier, static_cast<std::uint32_t>(steps.columns * kLength * 4));
  if constexpr (kRows == BoxesRows::whole) {
    ptx::tensor_copy(staging, &maps.load[0], 0, row, t0 / kBoxesLine, barrier);
  } else {
    const auto bytes = static_cast<std::uint32_t>((kSlots >> steps.store_bits) * kBoxesWidth * 4);
#pragma unroll 1
    for (int own = 0; own < 1 << steps.store_bits; ++own)
      ptx::tensor_copy(staging + static_cast<std::uint32_t>(own) * bytes, &maps.load[own],
                       t0 + steps.shift[own] + maps.offset[own], row >> steps.store_bits, 0, barrier);
  }
}

/// The same by a consumer's threads, of a tile at its rows' ends. `out`: of the tile's first row.
template <BoxesRows kRows, bool kHalf>
__device__ __forceinline__ void bring_ends(const TapGemm& form, const BoxesSteps& steps, std::int64_t distance, int t0,
                                           float* staging, const float* out, int warp, int lane) {
  const auto length = static_cast<int>(form.out_length);
  constexpr bool kWhole = kRows == BoxesRows::whole;
#pragma unroll 1
  for (int row = warp; row < (kHalf ? 32 : 64); row += 4) {
    const int column = kWhole ? row : boxes_column<kHalf>(steps, row);
    if (column >= steps.columns) continue;
    const int begin = kWhole ? t0 : t0 + boxes_shift<kHalf>(steps, row);
    const float* const from = Epilogue::beside(out + column * form.out_length, distance);
#pragma unroll 1
    for (int at = lane; at < (kWhole ? kBoxesPositions : kBoxesWidth) && begin + at < length; at += 32) {
      const int line = at / kBoxesLine, in_line = at % kBoxesLine;
      const int place = kWhole ? (line * steps.columns + row) * kBoxesLine + (in_line / 4 ^ (row & 7)) * 4 + in_line % 4
                               : row * kBoxesWidth + at;
      staging[place] = from[begin + at];
    }
  }
}

/// stage_whole() or stage_boxes() of what has something beside it, which is in the staging, where the outputs will be. `part`
/// residual: the sums are outputs up to there; derivative: they become such, and nothing is staged.
template <BoxesRows kRows, bool kStacked>
__device__ __forceinline__ void stage_beside(const BoxesColumn& column, float (&sums)[kBoxesPositions / 2], int half, int q,
                                             int further, unsigned char* memory, const Epilogue& epilogue, FinishPart part,
                                             bool stays_plain) {
  const FinishBeside<float> finish(epilogue, part);
  constexpr int kAtOnce = 4;
  if (kRows == BoxesRows::whole && !column.exists) return;
  const auto place = [&](int i) -> float* {
    if constexpr (kRows != BoxesRows::whole) return column.to + 8 * i;
    return &whole_pair(memory, column.place, i, further)->x;
  };
  const auto has = [&](int i, int which) {
    const int position = 2 * q + (kRows == BoxesRows::any ? which : 0);
    return kRows == BoxesRows::whole || is_in_window(i, position, column.shift);
  };
#pragma unroll
  for (int first = 0; first < kBoxesPositions / 8; first += kAtOnce) {
    float2 beside[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const float* const from = place(first + j);
      beside[j] = make_float2(0.0F, 0.0F);
      if constexpr (kRows == BoxesRows::any) {
        if (has(first + j, 0)) beside[j].x = from[0];
        if (has(first + j, 1)) beside[j].y = from[1];
      } else {
        if (has(first + j, 0)) beside[j] = *reinterpret_cast<const float2*>(from);
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      float* const to = place(first + j);
      const int at = 4 * (first + j) + 2 * half;
      float2 pair = part == FinishPart::residual ? make_float2(sums[at], sums[at + 1])
                                                 : boxes_pair<kStacked>(sums, at, column.factor, column.offset, BoxesPlain());
      const float2 done = make_float2(finish(pair.x, beside[j].x), finish(pair.y, beside[j].y));
      pair.x = stays_plain ? pair.x : done.x;
      pair.y = stays_plain ? pair.y : done.y;
      if (part == FinishPart::derivative) {
        sums[at] = pair.x;
        sums[at + 1] = pair.y;
      } else if constexpr (kRows == BoxesRows::any) {
        if (has(first + j, 0)) to[0] = pair.x;
        if (has(first + j, 1)) to[1] = pair.y;
      } else {
        if (has(first + j, 0)) *reinterpret_cast<float2*>(to) = pair;
      }
    }
  }
}

/// store_before() of what has something beside it.
template <bool kStacked>
__device__ __forceinline__ void finish_before(const BoxesColumn& column, const float (&sums)[kBoxesPositions / 2], int half,
                                              int q, std::int64_t ahead, const Epilogue& epilogue, bool stays_plain) {
  const StoreFinish<float> finish(epilogue);
  const float2 pair = boxes_pair<kStacked>(sums, 2 * half, column.factor, column.offset, BoxesPlain());
  float* const first = column.first + ahead;
  if (2 * q < column.before) first[0] = stays_plain ? pair.x : finish(pair.x, finish.others(first));
  if (2 * q + 1 < column.before) first[1] = stays_plain ? pair.y : finish(pair.y, finish.others(first + 1));
}

}  // namespace polyphase::cuda::tensor_core
