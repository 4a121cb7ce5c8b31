#pragma once
// Finds the suspect sums of kernel.cuh, and recomputes them when everything is stored.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/rounding.hpp"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/recompute/recompute_block.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/carry.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/producer.cuh"

namespace polyphase::cuda::tensor_core {

/// Sets a warp's suspect sums to NaN: all of them, or those near zero. NaN survives every later step, so a stored NaN is
/// recomputed; results that are NaN by themselves are recomputed too. Returns whether there are any.
template <class Operand, int kN, int kHalves>
__device__ __forceinline__ bool mark_suspect(SuspectCount suspect_count, float (&sums)[kHalves][kN / 2]) {
  const float nan = __int_as_float(0x7fffffff), least = suspect_count < kNeverSplit ? least_right<Operand>(suspect_count) : nan;
  std::uint32_t suspect_tiles = 0;
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
#pragma unroll
    for (int m = 0; m < kHalves; ++m) {
      const bool is_right = fabsf(sums[m][i]) >= least;
      suspect_tiles |= is_right ? 0U : 1U;
      sums[m][i] = is_right ? sums[m][i] : nan;
    }
  }
  return __any_sync(0xffffffffU, suspect_tiles != 0) != 0;
}

/// The positions of a tile that its block stores in one row; `address` is the address of the tile's first output.
template <bool kRuns>
struct OwnPositions {
  int begin, end;
  __device__ __forceinline__ OwnPositions(const Stride1Tiling& tiling, const Stride1Walk<kRuns, true>& walk,
                                          const float* address) {
    const auto behind = static_cast<int>(reinterpret_cast<std::uintptr_t>(address) / sizeof(float)) & (tiling.aligned - 1);
    if constexpr (kRuns) {
      begin = walk.at == 0 ? tiling.aligned - behind : 0;
      end = walk.at + 1 == walk.length(tiling) ? kCarryPositions - behind : kCarryPositions;
    } else {
      begin = (tiling.aligned - behind) & (tiling.aligned - 1);
      end = begin + tiling.position_step;
    }
  }
};

/// Recomputes a warp's sums of one tile that were set to NaN.
template <class Mode, int kColumnsOfTile>
__device__ __forceinline__ void recompute_row_tile(const TapGemm& gemm, const Stride1Tiling& tiling, const ExactSource<>& exact,
                                                   float* out, const Stride1Walk<Mode::kCarries, true>& walk, int warp) {
  constexpr int kM = 2, kN = 2, kColumns = 16 * kM;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const TilePlace place = walk.place(tiling);
  const std::int64_t first_channel = place.g * gemm.out_channels;
  const std::int64_t t0 = place.position + gemm.out_origin;
#pragma unroll 1
  for (int block = 0; block < Mode::kHalves * static_cast<int>(divide_up(kColumnsOfTile, kColumns)); ++block) {
    const int first = block / Mode::kHalves * kColumns,
              position0 = Mode::position(warp) + block % Mode::kHalves * Mode::kHalfStep;
    std::int64_t columns[2 * kM];
    float* rows[2 * kM];  // at the tile's first output
#pragma unroll
    for (int c = 0; c < 2 * kM; ++c) {
      const std::int64_t column = place.column + first + lane / 4 + 8 * c;
      columns[c] = column < gemm.columns && first + lane / 4 + 8 * c < kColumnsOfTile ? column : -1;
      rows[c] = out + (place.n * gemm.G * gemm.out_channels + first_channel + column) * gemm.out_length + t0;
    }
    const auto address = [&](int c, int j) -> float* {
      const int position = position0 + j;
      const std::int64_t t = t0 + position;
      if (columns[c] < 0 || t < 0 || t >= gemm.out_length) return nullptr;
      const OwnPositions<Mode::kCarries> own(tiling, walk, rows[c]);
      return position >= own.begin && position < own.end ? rows[c] + position : nullptr;
    };
    const std::uint32_t suspects = suspects_of_block<kM, kN>(address, [](int, float stored) { return !(stored == stored); });
    recompute_block<kM, kN>(gemm, exact, place.g, columns, suspects, [&](int j) {
      return SumPosition{place.n, place.position + position0 + j};
    });
  }
}

/// Recomputes a warp's suspect sums when all of its tiles are stored, by whichever warp of the block: those of tile `number`
/// and of the tiles linked before it. Not inlined: it has registers of its own.
template <class Mode, int kN>
__device__ __noinline__ void recompute_rows(const TapGemm& gemm, const Stride1Tiling& tiling, const ExactSource<>& exact,
                                            float* out, const Stride1Order& order, std::uint32_t number, int pair, int warp) {
  Stride1Walk<Mode::kCarries, true> walk(tiling, pair);
  __syncwarp();
#pragma unroll 1
  for (; number != kNoTile; number = *order.before(tiling, walk, number, warp)) {
    walk.go_to(tiling, number);
    recompute_row_tile<Mode, kN>(gemm, tiling, exact, out, walk, warp);
  }
}

}  // namespace polyphase::cuda::tensor_core
