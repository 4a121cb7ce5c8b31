#pragma once
// What a block of the weight gradient sums, and where its sums belong.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"

namespace polyphase::cuda::tensor_core {

struct WgradPlace {
  int group, row_block, column_block, shift;  // first of the block
  int own_shift;                              // the first that no block before it has
  int slice;
  std::int64_t first_chunk, last_chunk;
  int begun;       // steps that can be copied before the first has ended
  int when_begun;  // those left at the last of them, itself included
  float* free;     // shared memory for sums of two consumers
};

__device__ __forceinline__ WgradPlace wgrad_place(std::uint32_t block, const WgradTiling& tiling) {
  const auto jobs = static_cast<std::uint32_t>(tiling.jobs);
  WgradPlace place;
  place.slice = static_cast<int>(block / jobs);
  auto job = static_cast<int>(block % jobs);
  // The last tile moves back instead of reaching past the shifts; what it repeats it does not store.
  place.own_shift = job % tiling.shift_tiles * tiling.shape.shifts;
  place.shift = max(0, min(place.own_shift, tiling.shifts - tiling.shape.shifts));
  job /= tiling.shift_tiles;
  place.column_block = job % tiling.column_tiles * tiling.columns.tile;
  job /= tiling.column_tiles;
  place.row_block = job % tiling.row_tiles * tiling.rows.tile;
  place.group = job / tiling.row_tiles;
  place.first_chunk = place.slice * tiling.chunks_per_slice;
  place.free = nullptr;
  place.last_chunk = min(place.first_chunk + tiling.chunks_per_slice, tiling.chunks);
  place.begun = min(static_cast<int>(place.last_chunk - place.first_chunk), min(tiling.columns_stages, tiling.rows_stages));
  place.when_begun = static_cast<int>(place.last_chunk - place.first_chunk) - place.begun + 1;
  return place;
}

/// Writes a warp's 16 rows of every shift: partial[slice][C_in][C_out/G][K].
template <int kN, int kShifts>
__device__ __forceinline__ void store_partial(const ConvProblem& problem, const WgradTiling& tiling, const WgradPlace& place,
                                              int slice, int own_row, int row_of_block, int lane, float scale,
                                              float scale_again, float* __restrict__ partial,
                                              const float (&total)[kShifts][kN / 2]) {
  const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
  const std::int64_t row_step = tiling.swapped ? problem.K : out * problem.K;
  const std::int64_t column_step = tiling.swapped ? out * problem.K : problem.K;
  partial += (std::int64_t{slice} * problem.C_in + place.group * in) * out * problem.K;
  const int blocks = min(tiling.columns.blocks - place.column_block, tiling.columns.tile);
  const int first_k = tiling.q * place.shift;
  // Four neighbouring planes are four neighbouring taps.
  const int planes = tiling.columns.planes;
  const bool by_four = planes % 4 == 0 && place.column_block % 4 == 0 && blocks % 4 == 0 && tiling.q % 4 == 0 &&
                       problem.K % 4 == 0 && tiling.rows.planes == 1 && reinterpret_cast<std::uintptr_t>(partial) % 16 == 0;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    const int row_block = place.row_block + own_row / 8 + half;
    if (row_block >= min(tiling.rows.blocks, place.row_block + tiling.rows.tile)) continue;
    const int row = row_block / tiling.rows.planes * 8 + row_of_block, row_plane = row_block % tiling.rows.planes;
    if (row >= tiling.rows.channels) continue;
    int column = place.column_block / tiling.columns.planes * 8 + 2 * (lane % 4);
    int plane = place.column_block % tiling.columns.planes;
    float* to = partial + row * row_step + column * column_step + first_k + row_plane;
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      if (i < blocks) {
#pragma unroll
        for (int shift = 0; shift < kShifts; ++shift) {
          const int k = plane + tiling.q * shift;
          if (first_k + row_plane + k >= problem.K || place.shift + shift < place.own_shift || (by_four && i % 4 != 0))
            continue;
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            if (by_four) {
              if (column + c >= tiling.columns.channels) continue;
              float four[4];
#pragma unroll
              for (int j = 0; j < 4; ++j) {
                const int at = 4 * ((i + j) % (kN / 8)) + c;
                four[j] = (half == 0 ? total[shift][at] : total[shift][at + 2]) * scale * scale_again;
              }
              *reinterpret_cast<float4*>(to + c * column_step + k) = make_float4(four[0], four[1], four[2], four[3]);
              continue;
            }
            const float sum = half == 0 ? total[shift][4 * i + c] : total[shift][4 * i + 2 + c];
            if (column + c < tiling.columns.channels) to[c * column_step + k] = sum * scale * scale_again;
          }
        }
      }
      if (++plane == tiling.columns.planes) {
        plane = 0;
        column += 8;
        to += 8 * column_step;
      }
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
