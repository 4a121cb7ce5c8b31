#pragma once
// Stores a consumer's sums as rows of the output. They are staged as boxes, one per class of rows modulo a sector, each from a
// sector on, and sent through tensor maps during the products of the next tile.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/maps.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace polyphase::cuda::tensor_core {

/// The output column of a row of gemm_m. Staged rows are ordered by class.
template <bool kHalf>
__device__ __forceinline__ int tma_column(const TmaTiling& tiling, int row) {
  const int bits = (kHalf ? 5 : 6) - tiling.store_bits;
  return (row & ((1 << bits) - 1)) << tiling.store_bits | row >> bits;
}
/// The row's shift.
template <bool kHalf>
__device__ __forceinline__ int tma_shift(const TmaTiling& tiling, int row) {
  return tiling.shift[row >> ((kHalf ? 5 : 6) - tiling.store_bits)];
}

/// Where a thread stages the sums of one column, and their factor and offset.
struct TmaColumn {
  std::uint32_t place;  // whole rows: whole_place()
  bool exists;
  float* to;  // of position 2q
  int shift;  // of its window
  float factor, offset;
};

/// The numbers of an output row that precede its first window.
struct TmaBefore {
  float* first;  // at position 2q
  int count;
};
/// Those of staged row `row`. `first_row`: the output row of the tile's first. What only few tiles need is computed where they
/// need it.
template <bool kHalf>
__device__ __forceinline__ TmaBefore tma_before(const TapGemm& gemm, const TmaTiling& tiling, float* out, int first_row,
                                                int row, int q) {
  ptx::opaque(row);
  const int column = tma_column<kHalf>(tiling, row), length = static_cast<int>(gemm.out_length);
  return {out + (first_row + column) * gemm.out_length + 2 * q,
          column < tiling.columns ? min(tma_shift<kHalf>(tiling, row), length) : 0};
}

/// Sums without an activation.
struct TmaPlain {
  __device__ __forceinline__ float operator()(float value) const { return value; }
};

/// The outputs of sums `at` and at + 1 of a thread; if they are stacked, their low parts are the two after them.
template <bool kStacked, class Activation>
__device__ __forceinline__ float2 tma_pair(const float (&sums)[kTmaPositions / 2], int at, float factor, float offset,
                                           const Activation& activation) {
  float even = sums[at], odd = sums[at + 1];
  if constexpr (kStacked) {
    even = fmaf(sums[at + 2], 1.0F / kLowScale, even);
    odd = fmaf(sums[at + 3], 1.0F / kLowScale, odd);
  }
  return make_float2(activation(fmaf(even, factor, offset)), activation(fmaf(odd, factor, offset)));
}

/// Sums of the first half of the steps, in the staging: a thread's own, with the low parts added.
template <class Mode>
__device__ __forceinline__ void put_halves_aside(const float (&sums)[kTmaPositions / 2], float* staging, int thread) {
  auto* const own = reinterpret_cast<float2*>(staging) + thread;
#pragma unroll
  for (int i = 0; i < kTmaPositions / 8; ++i) own[i * 128] = tma_pair<Mode::kStacked>(sums, 4 * i, 1.0F, 0.0F, TmaPlain());
}
template <class Mode>
__device__ __forceinline__ void add_halves(float (&sums)[kTmaPositions / 2], const float* staging, int thread) {
  const auto* const own = reinterpret_cast<const float2*>(staging) + thread;
#pragma unroll
  for (int i = 0; i < kTmaPositions / 8; ++i) {
    const float2 first = own[i * 128];
    // With two sets of sums ptxas would serialise the wgmmas.
    ptx::add_in_place(sums[4 * i], first.x);
    ptx::add_in_place(sums[4 * i + 1], first.y);
  }
}

/// Whether a row's window contains position `own` of group i of eight in a tile; for rows that are not whole.
__device__ __forceinline__ bool is_in_window(int i, int own, int shift) {
  return i > 0 ? i < kTmaWidth / 8 || own < shift : own >= shift;
}

/// The staged row, of eight in a whole tile, for the sums of row `row` of eight. Four rows whose pairs are written together are
/// in different banks, because the place of 16 bytes in a line is XORed with the row's number.
__device__ __forceinline__ int whole_row(int row) { return (row & 3) * 2 + (row >> 2); }

/// Bytes from the staging of whole rows, [line][row][32], to positions 2q and 2q + 1 of a row.
__device__ __forceinline__ int whole_place(int row, int q) { return row * 128 + (q / 2 ^ (row & 7)) * 16 + q % 2 * 8; }

/// Where a thread's sums belong, and their factor and offset.
template <class Mode>
__device__ __forceinline__ void find_columns(const TapGemm& gemm, const TmaTiling& tiling, const float* __restrict__ bias,
                                             std::uint32_t g, int first_column, float factor, float* staging, int warp,
                                             int lane, TmaColumn (&columns)[Mode::kColumns]) {
#pragma unroll
  for (int half = 0; half < Mode::kColumns; ++half) {
    const int row = Mode::row_of(warp, lane, half);
    const int column = tma_column<Mode::kHalf>(tiling, row);
    TmaColumn& own = columns[half];
    own.shift = Mode::kRows == TmaRows::whole ? 0 : tma_shift<Mode::kHalf>(tiling, row);
    own.to = staging + row * kTmaWidth + 2 * (lane % 4) - own.shift;
    own.place = static_cast<std::uint32_t>(whole_place(row, lane % 4));
    own.exists = column < tiling.columns;
    own.factor = factor;
    const bool exists = column < tiling.columns;
    const std::int64_t channel = g * gemm.out_channels + first_column + column;
    own.offset = exists && bias != nullptr ? bias[channel] : 0.0F;
  }
}

/// The same for group i of eight, from `to` on, which belongs to the first. `further`: bytes from a line to the next.
__device__ __forceinline__ float2* whole_pair(unsigned char* memory, std::uint32_t to, int i, int further) {
  return reinterpret_cast<float2*>(memory + (to ^ static_cast<std::uint32_t>(i % 4 * 32)) + i / 4 * further);
}

/// Stages sums 2q and 2q + 1 of every eight positions of a whole row, from `to` on, which comes from whole_place(). `further`:
/// as in whole_pair().
template <bool kStacked, class Activation>
__device__ __forceinline__ void stage_whole(std::uint32_t to, float factor, float offset,
                                            const float (&sums)[kTmaPositions / 2], int half, int further,
                                            unsigned char* memory, const Activation& activation) {
#pragma unroll
  for (int i = 0; i < kTmaPositions / 8; ++i) {
    *whole_pair(memory, to, i, further) = tma_pair<kStacked>(sums, 4 * i + 2 * half, factor, offset, activation);
  }
}

/// Stores a whole tile at the end of rows that are not whole lines. `out`: of its first row.
__device__ __forceinline__ void store_whole(const TapGemm& gemm, const TmaTiling& tiling, int t0, const float* staging,
                                            float* out, int warp, int lane) {
#pragma unroll 1
  for (int row = warp; row < tiling.columns; row += 4) {
    const float* from = staging + (lane / 8 * tiling.columns + row) * kTmaLine + (lane % 8 ^ (row & 7)) * 4;
    if (t0 + 4 * lane < static_cast<int>(gemm.out_length))
      *reinterpret_cast<float4*>(out + row * gemm.out_length + t0 + 4 * lane) = *reinterpret_cast<const float4*>(from);
  }
}

/// Stages sums 2q and 2q + 1 of every eight positions, for column number `half` of a thread.
template <TmaRows kRows, bool kStacked, class Activation>
__device__ __forceinline__ void stage_boxes(const TmaColumn& column, const float (&sums)[kTmaPositions / 2], int half, int q,
                                            const Activation& activation) {
#pragma unroll
  for (int i = 0; i < kTmaPositions / 8; ++i) {
    const float2 pair = tma_pair<kStacked>(sums, 4 * i + 2 * half, column.factor, column.offset, activation);
    const float even = pair.x, odd = pair.y;
    if constexpr (kRows == TmaRows::pairs) {
      if (is_in_window(i, 2 * q, column.shift)) *reinterpret_cast<float2*>(column.to + 8 * i) = make_float2(even, odd);
    } else {
      if (is_in_window(i, 2 * q, column.shift)) column.to[8 * i] = even;
      if (is_in_window(i, 2 * q + 1, column.shift)) column.to[8 * i + 1] = odd;
    }
  }
}

/// In a row's first tile: stores what precedes the row's first window.
template <bool kStacked, class Activation>
__device__ __forceinline__ void store_before(const TmaColumn& column, const TmaBefore& before,
                                             const float (&sums)[kTmaPositions / 2], int half, int q,
                                             const Activation& activation) {
  const float2 pair = tma_pair<kStacked>(sums, 2 * half, column.factor, column.offset, activation);
  if (2 * q < before.count) before.first[0] = pair.x;
  if (2 * q + 1 < before.count) before.first[1] = pair.y;
}

/// In a tile that may contain the end of its rows: stores the last numbers of rows that do not end at 16 bytes, which no box
/// covers. `out`: of the tile's first row.
template <bool kHalf>
__device__ __forceinline__ void store_ends(const TapGemm& gemm, const TmaTiling& tiling, const TmaMaps& maps, int t0,
                                           const float* staging, float* out, int thread) {
  const auto length = static_cast<int>(gemm.out_length);
#pragma unroll 1
  for (int row = thread; row < (kHalf ? 32 : 64); row += 128) {
    const int own = row >> ((kHalf ? 5 : 6) - tiling.store_bits), column = tma_column<kHalf>(tiling, row);
    const int begin = t0 + tiling.shift[own];
    if (column >= tiling.columns) continue;
#pragma unroll 1
    for (int t = max(maps.store_numbers[own] - maps.store_offset[own], begin); t < min(length, begin + kTmaWidth); ++t)
      out[column * gemm.out_length + t] = staging[row * kTmaWidth + t - begin];
  }
}

/// Run by one thread of each of four warps: sends the staged data of a tile.
template <TmaRows kRows, bool kHalf>
__device__ __forceinline__ void send_boxes(const TapGemm& gemm, const TmaTiling& tiling, const TmaMaps& maps, int row, int t0,
                                           std::uint32_t staging, int warp) {
  constexpr int kSlots = kHalf ? 32 : 64;
  if constexpr (kRows == TmaRows::whole) {
    if (warp != 0) return;
    ptx::tensor_store(&maps.store[0], 0, row, t0 / kTmaLine, staging);
  } else {
    const auto bytes = static_cast<std::uint32_t>((kSlots >> tiling.store_bits) * kTmaWidth * 4);
#pragma unroll 1
    for (int own = warp; own < 1 << tiling.store_bits; own += 4) {
      const int begin = t0 + tiling.shift[own] + maps.store_offset[own];
      if (begin < maps.store_numbers[own])
        ptx::tensor_store(&maps.store[own], begin, row >> tiling.store_bits, 0,
                          staging + static_cast<std::uint32_t>(own) * bytes);
    }
  }
  ptx::bulk_commit();
}

/// Run by one thread: loads the aux operand into the staging. For tiles at their rows' ends see bring_ends().
template <TmaRows kRows, bool kHalf>
__device__ __forceinline__ void load_aux_boxes(const TmaTiling& tiling, const TmaAux& maps, int row, int t0,
                                               std::uint32_t staging, std::uint32_t barrier) {
  constexpr int kSlots = kHalf ? 32 : 64, kLength = kRows == TmaRows::whole ? kTmaPositions : kTmaWidth;
  ptx::mbarrier_arrive_expect(barrier, static_cast<std::uint32_t>(tiling.columns * kLength * 4));
  if constexpr (kRows == TmaRows::whole) {
    ptx::tensor_copy(staging, &maps.load[0], 0, row, t0 / kTmaLine, barrier);
  } else {
    const auto bytes = static_cast<std::uint32_t>((kSlots >> tiling.store_bits) * kTmaWidth * 4);
#pragma unroll 1
    for (int own = 0; own < 1 << tiling.store_bits; ++own)
      ptx::tensor_copy(staging + static_cast<std::uint32_t>(own) * bytes, &maps.load[own],
                       t0 + tiling.shift[own] + maps.offset[own], row >> tiling.store_bits, 0, barrier);
  }
}

/// The same by a consumer's threads, for a tile at its rows' ends. `out`: of the tile's first row.
template <TmaRows kRows, bool kHalf>
__device__ __forceinline__ void bring_ends(const TapGemm& gemm, const TmaTiling& tiling, std::int64_t distance, int t0,
                                           float* staging, const float* out, int warp, int lane) {
  const auto length = static_cast<int>(gemm.out_length);
  constexpr bool kWhole = kRows == TmaRows::whole;
#pragma unroll 1
  for (int row = warp; row < (kHalf ? 32 : 64); row += 4) {
    const int column = kWhole ? row : tma_column<kHalf>(tiling, row);
    if (column >= tiling.columns) continue;
    const int begin = kWhole ? t0 : t0 + tma_shift<kHalf>(tiling, row);
    const float* const from = Epilogue::aux(out + column * gemm.out_length, distance);
#pragma unroll 1
    for (int at = lane; at < (kWhole ? kTmaPositions : kTmaWidth) && begin + at < length; at += 32) {
      const int line = at / kTmaLine, in_line = at % kTmaLine;
      const int place = kWhole ? (line * tiling.columns + row) * kTmaLine + (in_line / 4 ^ (row & 7)) * 4 + in_line % 4
                               : row * kTmaWidth + at;
      staging[place] = from[begin + at];
    }
  }
}

/// stage_whole() or stage_boxes() with an aux operand that lies where the outputs will be staged; `finish` comes from
/// with_finish(). kPart residual: the sums are already outputs except for it; derivative: the sums become that, and nothing is
/// staged.
template <TmaRows kRows, bool kStacked, FinishPart kPart, class Finish>
__device__ __forceinline__ void stage_aux(const TmaColumn& column, float (&sums)[kTmaPositions / 2], int half, int q,
                                          int further, unsigned char* memory, const Finish& finish) {
  constexpr int kAtOnce = 4;
  if (kRows == TmaRows::whole && !column.exists) return;
  const auto place = [&](int i) -> float* {
    if constexpr (kRows != TmaRows::whole) return column.to + 8 * i;
    return &whole_pair(memory, column.place, i, further)->x;
  };
  const auto has = [&](int i, int which) {
    const int position = 2 * q + (kRows == TmaRows::any ? which : 0);
    return kRows == TmaRows::whole || is_in_window(i, position, column.shift);
  };
#pragma unroll
  for (int first = 0; first < kTmaPositions / 8; first += kAtOnce) {
    float2 aux[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const float* const from = place(first + j);
      aux[j] = make_float2(0.0F, 0.0F);
      if constexpr (kRows == TmaRows::any) {
        if (has(first + j, 0)) aux[j].x = from[0];
        if (has(first + j, 1)) aux[j].y = from[1];
      } else {
        if (has(first + j, 0)) aux[j] = *reinterpret_cast<const float2*>(from);
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      float* const to = place(first + j);
      const int at = 4 * (first + j) + 2 * half;
      float2 pair = kPart == FinishPart::residual ? make_float2(sums[at], sums[at + 1])
                                                  : tma_pair<kStacked>(sums, at, column.factor, column.offset, TmaPlain());
      pair = make_float2(finish(pair.x, aux[j].x), finish(pair.y, aux[j].y));
      if constexpr (kPart == FinishPart::derivative) {
        sums[at] = pair.x;
        sums[at + 1] = pair.y;
      } else if constexpr (kRows == TmaRows::any) {
        if (has(first + j, 0)) to[0] = pair.x;
        if (has(first + j, 1)) to[1] = pair.y;
      } else {
        if (has(first + j, 0)) *reinterpret_cast<float2*>(to) = pair;
      }
    }
  }
}

/// store_before() with an aux operand.
template <bool kStacked>
__device__ __forceinline__ void finish_before(const TmaColumn& column, const TmaBefore& before,
                                              const float (&sums)[kTmaPositions / 2], int half, int q, const Epilogue& epilogue,
                                              bool stays_plain) {
  const StoreFinish<float> finish(epilogue);
  const float2 pair = tma_pair<kStacked>(sums, 2 * half, column.factor, column.offset, TmaPlain());
  float* const first = before.first;
  if (2 * q < before.count) first[0] = stays_plain ? pair.x : finish(pair.x, finish.others(first));
  if (2 * q + 1 < before.count) first[1] = stays_plain ? pair.y : finish(pair.y, finish.others(first + 1));
}

}  // namespace polyphase::cuda::tensor_core
