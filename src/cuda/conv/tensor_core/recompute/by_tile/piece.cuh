#pragma once
// What is read of the source: the rows of a unit, and pieces of them in shared memory, which the converters copy ahead of their
// work.

#include <cstdint>

#include "cuda/conv/tensor_core/recompute/by_tile/arrays.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/shared.cuh"

namespace polyphase::cuda::tensor_core {

/// v[i] = gemm.activated(v[i])
template <int kCount>
__device__ __forceinline__ void activate_all(const TapGemm& gemm, float (&v)[kCount]) {
  if (gemm.source_slope == 1.0F) return;
#pragma unroll
  for (float& value : v) value = gemm.activated(value);
}

/// The rows of a unit. Their elements are counted from the one on that the unit's first position reads first, which need not
/// exist: elements [begin, end) do.
struct SourceRange {
  const float* base;  // element 0 of row 0, which need not exist
  std::int64_t length;
  int rows, begin, end;
  __device__ __forceinline__ SourceRange(const ByTileCall& call, const ByTileUnit& unit) {
    const TapGemm& gemm = call.gemm;
    const std::int64_t position = gemm.position_begin + unit.in_sample * call.tiling.unit_positions;
    const std::int64_t first = gemm.source_stride * position + gemm.source_origin, most = 0x3fffffff;
    const std::int64_t reach = gemm.source_stride * (call.tiling.unit_positions - 1 + (gemm.taps - 1) * gemm.tap_step) +
                               (gemm.planes - 1) * gemm.source_plane_step;
    begin = static_cast<int>(min(max(-first, std::int64_t{0}), most));
    end = static_cast<int>(max(min(min(gemm.source_length - first, reach + 1), most), std::int64_t{0}));
    rows = static_cast<int>(gemm.rows);
    length = gemm.source_length;
    base = call.exact.source + (unit.n * gemm.G + unit.g) * gemm.rows * length + first;
  }
};

/// Starts a warp's copy of elements [first, first + kPieceWidth) of eight rows to shared memory. What does not exist is zero.
__device__ __forceinline__ void copy_piece(const SourceRange& range, int row, int first, std::uint32_t to) {
  constexpr int kWidths = kPieceWidth / 32;
  first += static_cast<int>(threadIdx.x) % 32;
  to += threadIdx.x % 32 * 4;
  bool exists[kWidths];
#pragma unroll
  for (int i = 0; i < kWidths; ++i) exists[i] = first + 32 * i >= range.begin && first + 32 * i < range.end;
  const float* from = range.base + row * range.length + first;
  const int rows = min(range.rows - row, kPieceRows);
#pragma unroll 1
  for (int r = 0; r < rows; ++r, from += range.length, to += kPieceWidth * 4) {
#pragma unroll
    for (int i = 0; i < kWidths; ++i)
      ptx::copy_word_or_zero(to + static_cast<std::uint32_t>(i * 128), from + 32 * i, exists[i]);
  }
#pragma unroll 1
  for (int r = max(rows, 0); r < kPieceRows; ++r, to += kPieceWidth * 4) {
#pragma unroll
    for (int i = 0; i < kWidths; ++i) ptx::store_shared(to + static_cast<std::uint32_t>(i * 128), 0U);
  }
}

}  // namespace polyphase::cuda::tensor_core
