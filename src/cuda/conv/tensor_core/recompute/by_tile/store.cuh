#pragma once
// Stores the sums of the by_tile kernel.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/preconverted/place.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/store.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/arrays.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/operand.cuh"
#include "cuda/conv/tensor_core/recompute/suspects.cuh"
#include "cuda/conv/tensor_core/recompute/wide_outputs.cuh"

namespace polyphase::cuda::tensor_core {

using ByTileStore = PreconvertedStore<float, kWidePositions, kPreconvertedStagedBytes>;
inline constexpr int kByTileSums = kWidePositions / 2;

/// Whether ByTileStore can finish outputs with this epilogue: as the preconverted kernel's (its entry.cpp).
__device__ __forceinline__ bool is_for_store(const Epilogue& epilogue, const TapGemm& gemm) {
  if (epilogue.activation == Activation::snake) return false;
  return !epilogue.has_aux() || (epilogue.is_light() && !epilogue.has_both() && gemm.out_stride == 1);
}

/// sums *= the scale of their column.
__device__ __forceinline__ void unscale(float (&sums)[kByTileSums], const PowerPair& first, const PowerPair& second) {
#pragma unroll
  for (int i = 0; i < kByTileSums; ++i) {
    const PowerPair& own = i % 4 < 2 ? first : second;
    sums[i] = sums[i] * own.first * own.second;
  }
}

/// The infinite sums and NaN.
__device__ __forceinline__ Suspects<2> unusual_of(const float (&sums)[kByTileSums]) {
  constexpr float kLargest = 3.402823466e38F;
  Suspects<2> unusual;
#pragma unroll
  for (int i = 0; i < kByTileSums; ++i)
    if (!(fabsf(sums[i]) <= kLargest)) unusual.of_run[i / 32] |= 1U << i % 32;
  return unusual;
}

/// Where a warpgroup's sums belong.
struct SubtilePlace {
  std::int64_t n, g, column, position;  // position: of the sample, from position_begin on
};

/// Stores any epilogue, output by output, through 64 * kStagedPitch floats. Overwrites `sums`.
__device__ __forceinline__ void store_each(const WideOutputs& outputs, int usable, const SubtilePlace& place, float* memory,
                                           int barrier, float (&sums)[kByTileSums]) {
  const TapGemm& gemm = outputs.gemm;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
#pragma unroll 1
  for (int pass = 0; pass < kByTileSums / 16; ++pass) {
    stage_next_sums(memory, barrier, thread, sums);
    const std::int64_t position = gemm.position_begin + place.position + pass * 32 + lane;
    for (int c = thread / 32; c < usable && place.column + c < gemm.columns; c += 4) {
      const WideOutputs::Column of = outputs.column_of(place.n, place.g, place.column + c);
      float* const to = outputs.at(of, position);
      if (to != nullptr) outputs.finish(of, to, memory[c * kStagedPitch + lane]);
      outputs.finish_untouched(of, position);
    }
  }
  ptx::named_barrier(barrier, 128);
}

/// Sums an output again with FFMA, by a warp: `bit` of lane `of` in a run of 64 positions.
__device__ __forceinline__ void store_exact(const WideOutputs& outputs, int usable, const SubtilePlace& place, int run, int bit,
                                            int of) {
  const int in_tile = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + of / 4 + bit % 4 / 2 * 8;
  const std::int64_t column = place.column + in_tile, of_begin = place.position + run * 64 + bit / 4 * 8 + of % 4 * 2 + bit % 2;
  const TapGemm& gemm = outputs.gemm;
  if (in_tile >= usable || column >= gemm.columns || of_begin >= gemm.position_count) return;
  outputs.store_exact(place.n, place.g, column, gemm.position_begin + of_begin);
}

/// Sums the unusual sums of a warpgroup's tile again. Not inlined: it is rarely called.
__device__ __noinline__ void store_unusual(const WideOutputs outputs, int usable, const SubtilePlace place,
                                           Suspects<2> unusual) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int run = 0; run < 2; ++run) {
    std::uint32_t own = run == 0 ? unusual.of_run[0] : unusual.of_run[1];
    for (std::uint32_t lanes = __ballot_sync(0xffffffffU, own != 0); lanes != 0; lanes = __ballot_sync(0xffffffffU, own != 0)) {
      const int of = __ffs(static_cast<int>(lanes)) - 1;
      const int bit = __shfl_sync(0xffffffffU, __ffs(static_cast<int>(own)) - 1, of);
      if (lane == of) own &= own - 1;
      store_exact(outputs, usable, place, run, bit, of);
    }
  }
}

/// The outputs of the list, by all consumers of all blocks.
__device__ __noinline__ void store_list(const WideOutputs outputs, const ByTileCall call) {
  const WideBlocks& wide = call.exact.wide;
  const std::uint32_t listed = min(wide.words->listed, wide.list_size), step = gridDim.x * (kByTileConsumers / 32);
#pragma unroll 1
  for (std::uint32_t i = blockIdx.x + threadIdx.x / 32 * gridDim.x; i < listed; i += step)
    outputs.store_listed(wide.list[i], [&](std::int64_t n, std::int64_t g, std::int64_t column, std::int64_t of_begin) {
      return call.is_wanted(n, g, column / call.tiling.steps.usable, of_begin / kWidePositions);
    });
}

}  // namespace polyphase::cuda::tensor_core
