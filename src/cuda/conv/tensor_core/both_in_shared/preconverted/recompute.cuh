#pragma once
// Recomputes the suspect sums of the preconverted kernels. If a number has no operand, all sums that use it are suspect.
// Otherwise a sum is suspect if it is so near zero that numbers too small to split can matter: each loses at most 2^-36 times
// the other operand's 2^16, so a sum of at least 32 times their count loses less than 2^-24 of itself.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/store.cuh"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"
#include "cuda/conv/tensor_core/recompute/recompute_block.cuh"
#include "cuda/conv/tensor_core/recompute/suspects.cuh"

namespace polyphase::cuda::tensor_core {

/// Finds the suspect sums of a tile. A run of kFlagPositions positions is 32 sums of each thread.
template <class T>
struct SuspectFinder {
  static constexpr int kSumsOfRun = kFlagPositions / 8 * 4;
  const TapGemm& gemm;
  const PreconvertedTiling& tiling;
  const FlaggedSource<T>& exact;
  std::uint32_t weight_suspect_count;

  /// The number of flags that concern a run of positions: its own and those that later taps reach.
  __device__ __forceinline__ int flags_of_run() const {
    return 1 + static_cast<int>((kFlagPositions - 1 + (gemm.taps - 1) * gemm.tap_step) / kFlagPositions);
  }
  __device__ __forceinline__ std::uint32_t flag(const PreconvertedPlace& place, std::int64_t index) const {
    const std::int64_t at = place.position / kFlagPositions + index;
    return exact.flags != nullptr && at < tiling.source.flags ? exact.flags[place.g * tiling.source.flags + at] : 0;
  }
  /// This lane's share of all flags of a warpgroup's tile, combined by OR: zero in all lanes if no sum is suspect.
  __device__ __forceinline__ std::uint32_t look(const PreconvertedPlace& place, int positions) const {
    const int count = flags_of_run() + positions / kFlagPositions - 1;
    std::uint32_t suspect_count = weight_suspect_count;
    for (int i = static_cast<int>(threadIdx.x % 32); i < count; i += 32) suspect_count |= flag(place, i);
    return suspect_count;
  }
  /// The magnitude below which sums of a run are suspect, in the scale of the operands.
  __device__ __forceinline__ float least(const PreconvertedPlace& place, int run) const {
    const auto products = static_cast<float>(gemm.rows * gemm.planes * gemm.taps);
    std::uint32_t never = weight_suspect_count;
    float small = static_cast<float>(weight_suspect_count & ~kNever);
#pragma unroll 1
    for (int i = 0; i < flags_of_run(); ++i) {
      const std::uint32_t suspect_count = flag(place, run + i);
      never |= suspect_count;
      small += static_cast<float>(suspect_count & ~kNever);
    }
    return (never & kNever) != 0 ? INFINITY : 32.0F * fminf(products, small);
  }
  /// Bit i of suspects.of_run[run]: sums[32 * run + i] is suspect.
  template <int kSums>
  __device__ __forceinline__ void find(const PreconvertedPlace& place, const float (&sums)[kSums],
                                       Suspects<kSums / kSumsOfRun>& suspects) const {
#pragma unroll
    for (int run = 0; run < kSums / kSumsOfRun; ++run) {
      const float least_sum = least(place, run);
      if (least_sum == 0.0F) continue;
#pragma unroll
      for (int i = 0; i < kSumsOfRun; ++i) suspects.of_run[run] |= fabsf(sums[run * kSumsOfRun + i]) < least_sum ? 1U << i : 0U;
      if (least_sum == INFINITY) suspects.of_run[run] = 0xffffffffU;
    }
  }
};

/// Recomputes one suspect of a warp with FFMA: `bit` of lane `of`.
template <class Store, class T>
__device__ __forceinline__ void recompute_one(const Store& store, const Epilogue& epilogue, const FlaggedSource<T>& exact,
                                              T* __restrict__ out, const PreconvertedPlace& place, int run, int bit, int of) {
  const TapGemm& gemm = store.gemm;
  const int in_tile = store.thread / 32 * 16 + of / 4 + bit % 4 / 2 * 8;
  const std::int64_t column = place.column + in_tile;
  const auto at = store.where(place.position + run * kFlagPositions + bit / 4 * 8 + of % 4 * 2 + bit % 2);
  if (in_tile >= store.tiling.usable || column >= gemm.columns || at.n >= gemm.N ||
      at.in_sample >= store.tiling.sample_positions)
    return;
  const std::uint32_t channel = store.tiling.by_classes.divide(static_cast<std::uint32_t>(column));
  const std::int64_t a = column - channel * gemm.classes, t = at.t0 + a * gemm.out_class_step;
  if (t < 0 || t >= gemm.out_length) return;
  const float sum = exact_sum(gemm, exact, exact.is_forward, static_cast<std::int64_t>(at.n), place.g, column,
                              at.in_sample + store.tiling.source.position_begin);
  if (static_cast<int>(threadIdx.x) % 32 != of) return;
  T* const to = out + store.row_of(at.n, place.g, channel) + t;
  *to = epilogue.finish<T>(sum + store.bias_of(place, channel), place.g * gemm.out_channels + channel, to);
}

/// Maps the suspects of half a run of a warp to RecomputeBlock<1, 4>.
template <class Store>
__device__ __forceinline__ void recompute_half_run(const Store& store, const FlaggedSource<float>& exact,
                                                   const PreconvertedPlace& place, std::int64_t first, std::uint32_t suspects) {
  const TapGemm& gemm = store.gemm;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t columns[2];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int in_tile = store.thread / 32 * 16 + lane / 4 + 8 * c;
    const std::int64_t column = place.column + in_tile;
    columns[c] = in_tile < store.tiling.usable && column < gemm.columns ? column : -1;
  }
  recompute_block<1, 4>(gemm, exact, place.g, columns, suspects, [&](int j) {
    const auto at = store.where(first + j);
    const bool exists = at.n < gemm.N && at.in_sample < store.tiling.sample_positions;
    return SumPosition{exists ? static_cast<std::int64_t>(at.n) : -1, at.in_sample + store.tiling.source.position_begin};
  });
}

/// Recomputes the suspects of a warpgroup's tile. Not inlined, and everything is passed by value or is a kernel parameter: it
/// is rarely called, and must not take registers from its caller.
template <class Store, class T, int kRuns>
__device__ __noinline__ void recompute(const TapGemm& gemm, const PreconvertedTiling& tiling, const Epilogue& epilogue,
                                       const FlaggedSource<T>& exact, const T* __restrict__ bias, T* __restrict__ out,
                                       PreconvertedPlace place, Suspects<kRuns> suspects) {
  const Store store{gemm, tiling, ScaledFinish(0, epilogue), bias, out, nullptr, static_cast<int>(threadIdx.x) % 128, 0};
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int run = 0; run < kRuns; ++run) {
    std::uint32_t own = suspects.of_run[0];
    // Shifts the next ones to where the loop reads them: registers cannot be indexed.
#pragma unroll
    for (int i = 0; i + 1 < kRuns; ++i) suspects.of_run[i] = suspects.of_run[i + 1];
    if constexpr (sizeof(T) == 4) {
#pragma unroll 1
      for (int half = 0; half < 2; ++half)
        recompute_half_run(store, exact, place, place.position + run * kFlagPositions + 32 * half, own >> 16 * half & 0xffffU);
    } else {
      for (std::uint32_t lanes = __ballot_sync(0xffffffffU, own != 0); lanes != 0;
           lanes = __ballot_sync(0xffffffffU, own != 0)) {
        const int of = __ffs(static_cast<int>(lanes)) - 1;
        const int bit = __shfl_sync(0xffffffffU, __ffs(static_cast<int>(own)) - 1, of);
        if (lane == of) own &= own - 1;
        recompute_one(store, epilogue, exact, out, place, run, bit, of);
      }
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
