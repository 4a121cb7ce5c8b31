#pragma once
// Looks at the magnitudes of units, by warps that each have many outstanding loads.

#include <cstdint>

#include "cuda/conv/tensor_core/recompute/by_tile/arrays.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/operand.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/piece.cuh"
#include "cuda/ptx/acquire.cuh"

namespace polyphase::cuda::tensor_core {

/// The magnitudes of numbers in few instructions, valid if none is an Inf or NaN.
struct UsualMagnitudes {
  std::uint32_t most = 0, least_minus_one = 0xffffffffU;  // as float bits; the least one that is not zero
  __device__ __forceinline__ void add(float value) {
    const std::uint32_t magnitude = __float_as_uint(value) & 0x7fffffffU;
    most = max(most, magnitude);
    least_minus_one = min(least_minus_one, magnitude - 1);
  }
};

/// Adds what is read of kPartRows rows to `found`. A lane has 40 outstanding loads.
template <class Found>
__device__ __forceinline__ void look_at_rows(const TapGemm& gemm, const SourceRange& range, int first_row, Found& found) {
  constexpr int kWidths = kPieceWidth / 32;
  const int end_row = min(first_row + kPartRows, range.rows), lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int row = first_row; row < end_row; row += kPieceRows) {
#pragma unroll 1
    for (int first = range.begin + lane; first - lane < range.end; first += kPieceWidth) {
      float v[kPieceRows][kWidths];
      const float* from = range.base + row * range.length + first;
#pragma unroll
      for (int r = 0; r < kPieceRows; ++r, from += range.length) {
#pragma unroll
        for (int i = 0; i < kWidths; ++i) v[r][i] = row + r < end_row && first + 32 * i < range.end ? from[32 * i] : 0.0F;
      }
#pragma unroll
      for (int r = 0; r < kPieceRows; ++r) {
        activate_all(gemm, v[r]);
#pragma unroll
        for (int i = 0; i < kWidths; ++i) found.add(v[r][i]);
      }
    }
  }
}

/// A part of a unit, by a warp.
__device__ __forceinline__ void look_at_part(const ByTileCall& call, std::uint32_t index, int part) {
  const ByTileUnit unit(call.tiling, call.gemm, index);
  if (!is_unit_wanted(call, unit)) return;
  const SourceRange range(call, unit);
  UsualMagnitudes usual;
  look_at_rows(call.gemm, range, part * kPartRows, usual);
  std::uint32_t most = __reduce_max_sync(0xffffffffU, usual.most),
                least = __reduce_min_sync(0xffffffffU, usual.least_minus_one) + 1;
  UnitExtent& extent = call.arrays.extents[index];
  if (most >= 0x7f800000U) {
    Magnitudes finite;
    look_at_rows(call.gemm, range, part * kPartRows, finite);
    most = __reduce_max_sync(0xffffffffU, finite.most), least = __reduce_min_sync(0xffffffffU, finite.least);
    if (threadIdx.x % 32 == 0) atomicOr(&extent.unusual, 1U);
  }
  if (threadIdx.x % 32 == 0 && most != 0) atomicMax(&extent.most, most), atomicMax(&extent.not_least, ~least);
}

/// All units, with other blocks. The last ones first: converting begins with the others, and they are still in L2 then.
__device__ __forceinline__ void look_at_units(const ByTileCall& call) {
  const FastDivide& parts = call.tiling.by_parts;
  const std::uint32_t count = static_cast<std::uint32_t>(call.tiling.units) * parts.divisor, lane = threadIdx.x % 32;
  std::uint32_t next = 0, done = 0;
  if (lane == 0) next = atomicAdd(&call.arrays.words->look, 1U);
#pragma unroll 1
  for (;; ++done) {
    const std::uint32_t taken = __shfl_sync(0xffffffffU, next, 0);
    if (taken >= count) break;
    if (lane == 0) next = atomicAdd(&call.arrays.words->look, 1U);  // which takes a while
    const std::uint32_t item = count - 1 - taken, index = parts.divide(item);
    look_at_part(call, index, static_cast<int>(item - index * parts.divisor));
  }
  if (lane == 0 && done != 0) ptx::add_release(&call.arrays.words->prepared, done);
}

}  // namespace polyphase::cuda::tensor_core
