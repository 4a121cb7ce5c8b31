#pragma once
// Recomputes the suspect sums of a warp after they are stored. The bounds are those of
// both_in_shared/preconverted/recompute.cuh.

#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/recompute.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"

namespace polyphase::cuda::tensor_core {

/// Bit 4 * j + c of of_columns[i]: sums[i][j][c] of this thread is suspect.
struct MmaSuspects {
  std::uint32_t of_columns[4] = {};
  __device__ __forceinline__ bool any() const { return (of_columns[0] | of_columns[1] | of_columns[2] | of_columns[3]) != 0; }
};

/// `place` belongs to the warp, whose positions all have the same flags.
template <class T, int kVectors>
__device__ __forceinline__ MmaSuspects mma_suspects(const SuspectFinder<T>& finder, const PreconvertedPlace& place,
                                                    const float (&sums)[4][kVectors][4]) {
  static_assert(kVectors * 8 <= kFlagPositions && kFlagPositions % (kVectors * 8) == 0);
  const float least = finder.least(place, 0);
  MmaSuspects suspects;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < kVectors * 4; ++j) suspects.of_columns[i] |= fabsf(sums[i][j / 4][j % 4]) < least ? 1U << j : 0U;
    if (least == INFINITY) suspects.of_columns[i] = ~0U >> (32 - kVectors * 4);
  }
  return suspects;
}

/// Recomputes one suspect of a warp with FFMA: `bit` of column group i of lane `of`.
template <class T>
__device__ __forceinline__ void mma_recompute_one(const TapGemm& gemm, const PreconvertedTiling& tiling,
                                                  const Epilogue& epilogue, const FlaggedSource<T>& exact,
                                                  const T* __restrict__ bias, T* __restrict__ out,
                                                  const PreconvertedPlace& place, int i, int bit, int of) {
  const int in_warp = i * 16 + bit % 4 / 2 * 8 + of / 4;
  const std::int64_t column = place.column + in_warp;
  const auto flat = static_cast<std::uint32_t>(place.position + bit / 4 * 8 + of % 4 * 2 + bit % 2);
  const std::uint32_t n = tiling.source.by_sample.divide(flat);
  const std::int64_t in_sample = flat - n * tiling.source.by_sample.divisor;
  if (in_warp >= tiling.usable || column >= gemm.columns || n >= gemm.N || in_sample >= tiling.sample_positions) return;
  const std::uint32_t channel = tiling.by_classes.divide(static_cast<std::uint32_t>(column));
  const std::int64_t position = in_sample + tiling.source.position_begin, a = column - channel * gemm.classes;
  const std::int64_t t = gemm.out_stride * position + gemm.out_origin + a * gemm.out_class_step;
  if (t < 0 || t >= gemm.out_length) return;
  const float sum = exact_sum(gemm, exact, exact.is_forward, static_cast<std::int64_t>(n), place.g, column, position);
  if (static_cast<int>(threadIdx.x) % 32 != of) return;
  const std::int64_t own_channel = place.g * gemm.out_channels + channel;
  T* const to = out + (n * gemm.G * gemm.out_channels + own_channel) * gemm.out_length + t;
  const float offset = bias != nullptr ? static_cast<float>(bias[own_channel]) : 0.0F;
  *to = epilogue.finish<T>(sum + offset, own_channel, to);
}

/// Maps the suspects of 16 columns and 8 * kN positions of a warp to RecomputeBlock<1, kN>.
template <int kN>
__device__ __forceinline__ void mma_recompute_block(const TapGemm& gemm, const PreconvertedTiling& tiling,
                                                    const FlaggedSource<float>& exact, const PreconvertedPlace& place,
                                                    int first_column, std::int64_t first, std::uint32_t suspects) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t columns[2];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int in_warp = first_column + lane / 4 + 8 * c;
    const std::int64_t column = place.column + in_warp;
    columns[c] = in_warp < tiling.usable && column < gemm.columns ? column : -1;
  }
  const auto position = [&](int j) {
    const auto flat = static_cast<std::uint32_t>(first + j);
    const std::uint32_t n = tiling.source.by_sample.divide(flat);
    const std::int64_t in_sample = flat - n * tiling.source.by_sample.divisor;
    const bool exists = n < gemm.N && in_sample < tiling.sample_positions;
    return SumPosition{exists ? static_cast<std::int64_t>(n) : -1, in_sample + tiling.source.position_begin};
  };
  recompute_block<1, kN>(gemm, exact, place.g, columns, suspects, position);
}

/// Recomputes the suspects of a warp. Not inlined: it is rarely called, and must not take registers from its caller.
template <class T>
__device__ __noinline__ void mma_recompute(const TapGemm& gemm, const PreconvertedTiling& tiling, const Epilogue& epilogue,
                                           const FlaggedSource<T>& exact, const T* __restrict__ bias, T* __restrict__ out,
                                           PreconvertedPlace place, MmaSuspects suspects) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    std::uint32_t own = suspects.of_columns[0];
    // Shifts the next ones to where the loop reads them: registers cannot be indexed.
#pragma unroll
    for (int next = 0; next < 3; ++next) suspects.of_columns[next] = suspects.of_columns[next + 1];
    if constexpr (sizeof(T) == 4) {
#pragma unroll 1
      for (int first = 0; first < kFlagPositions / 2; first += 16)
        mma_recompute_block<2>(gemm, tiling, exact, place, i * 16, place.position + first, own >> first / 2 & 0xffU);
    } else {
      for (std::uint32_t lanes = __ballot_sync(0xffffffffU, own != 0); lanes != 0;
           lanes = __ballot_sync(0xffffffffU, own != 0)) {
        const int of = __ffs(static_cast<int>(lanes)) - 1;
        const int bit = __shfl_sync(0xffffffffU, __ffs(static_cast<int>(own)) - 1, of);
        if (lane == of) own &= own - 1;
        mma_recompute_one(gemm, tiling, epilogue, exact, bias, out, place, i, bit, of);
      }
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
