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

using ByTileStore = PreconvertedStore<float, kWidePositions, kByTileStagedBytes>;
inline constexpr int kByTileSums = kWidePositions / 2;

/// Whether ByTileStore can finish outputs with this epilogue: as the preconverted kernel's (its entry.cpp).
__device__ __forceinline__ bool is_for_store(const Epilogue& epilogue, const TapGemm& gemm) {
  if (epilogue.activation == Activation::snake) return false;
  return !epilogue.has_aux() || (epilogue.is_light() && !epilogue.has_both() && gemm.out_stride == 1);
}

/// The two columns of a thread's sums: the exponents of their weights and their bias, which are copied to shared memory during
/// the products.
struct OwnColumns {
  const ByTileCall& call;
  const Epilogue& epilogue;
  const float* bias;
  int in_tile;  // the first of the two in its tile; the second is the eighth after it
  [[nodiscard]] __device__ __forceinline__ std::uint32_t memory() const {
    return ptx::shared_address(call.shared.columns + threadIdx.x);
  }
  /// `first`: the column of the warpgroup's first sum.
  __device__ __forceinline__ void bring(std::int64_t g, std::uint32_t column_tile, std::int64_t first) const {
    const PreconvertedTiling& steps = call.tiling.steps;
    const int* const exponents = call.arrays.exponents + (g * steps.column_tiles + column_tile) * steps.tile_columns + in_tile;
    const auto column = static_cast<std::uint32_t>(first) + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    // store_each() adds the bias itself.
    const bool has_bias = bias != nullptr && is_for_store(epilogue, call.gemm);
    const float* const of_group = bias + g * call.gemm.out_channels;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ptx::copy_word(memory() + static_cast<std::uint32_t>(i * 4), exponents + i * 8);
      const std::uint32_t channel = steps.by_classes.divide(column + static_cast<std::uint32_t>(i * 8));
      ptx::copy_word_or_zero(memory() + static_cast<std::uint32_t>(8 + i * 4), of_group + channel,
                             has_bias && channel < call.gemm.out_channels);
    }
    ptx::copy_commit();
  }
  /// sums = sums * 2^(power + the exponent of their column) + bias
  __device__ __forceinline__ void scale(float (&sums)[kByTileSums], int power) const {
    ptx::copy_wait<0>();
    const uint2 exponents = ptx::load_shared_pair(memory()), offsets = ptx::load_shared_pair(memory() + 8);
    const PowerPair first(power + static_cast<int>(exponents.x)), second(power + static_cast<int>(exponents.y));
#pragma unroll
    for (int i = 0; i < kByTileSums; ++i) {
      const PowerPair& own = i % 4 < 2 ? first : second;
      sums[i] = fmaf(sums[i] * own.first, own.second, __uint_as_float(i % 4 < 2 ? offsets.x : offsets.y));
    }
  }
};

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

/// The element of a warpgroup's first position in its rows.
__device__ __forceinline__ std::int64_t first_element(const TapGemm& gemm, const SubtilePlace& place) {
  return gemm.out_stride * (gemm.position_begin + place.position) + gemm.out_origin;
}

/// Whether store_pairs() stores a tile: of plain convolutions or of two classes (stride 2), whole in its sample and rows, with
/// pairs of outputs that are eight bytes.
__device__ __forceinline__ bool is_for_pairs(const ByTileStore& store, const SubtilePlace& place) {
  const TapGemm& gemm = store.gemm;
  const std::int64_t t = first_element(gemm, place);
  return gemm.classes <= 2 && store.tiling.by_warps && place.position + kWidePositions <= gemm.position_count && t >= 0 &&
         t + gemm.classes * kWidePositions <= gemm.out_length && gemm.out_length % 2 == 0 &&
         (reinterpret_cast<std::uintptr_t>(store.out + t) & 7) == 0;
}

/// Stores pairs of outputs from registers, which is less code and faster than through shared memory.
__device__ __forceinline__ void store_pairs(const ByTileStore& store, const PreconvertedPlace& rows, const SubtilePlace& place,
                                            const float (&sums)[kByTileSums]) {
  const TapGemm& gemm = store.gemm;
  const auto classes = static_cast<int>(gemm.classes), lane = store.thread % 32;
  const std::int64_t channel = (rows.column + store.thread / 32 * 16 + lane / 4) / classes;
  const bool is_odd = lane / 4 % 2 != 0;
  float* const to = store.out + store.row_of(static_cast<std::uint32_t>(place.n), place.g, channel) +
                    first_element(gemm, place) + classes * 2 * (lane % 4) + (classes == 2 && is_odd ? 2 : 0);
  const std::int64_t second = 8 / classes * gemm.out_length;
  const bool has_first = channel < gemm.out_channels, has_second = channel + 8 / classes < gemm.out_channels;
  // The lanes of two classes exchange one of two positions each. Then each has two neighbours.
  const auto pair = [&](int first) {
    const float2 own{sums[first], sums[first + 1]};
    if (classes == 1) return own;
    const float other = __shfl_xor_sync(0xffffffffU, is_odd ? own.x : own.y, 4);
    return float2{is_odd ? other : own.x, is_odd ? own.y : other};
  };
#pragma unroll
  for (int i = 0; i < kByTileSums / 4; ++i) {
    const float2 one = pair(4 * i), two = pair(4 * i + 2);
    if (has_first) *reinterpret_cast<float2*>(to + i * 8 * classes) = one;
    if (has_second) *reinterpret_cast<float2*>(to + second + i * 8 * classes) = two;
  }
}

/// Stores scaled sums with an epilogue that is_for_store().
__device__ __forceinline__ void store_tile(const ByTileStore& store, const PreconvertedPlace& rows, const SubtilePlace& place,
                                           float (&sums)[kByTileSums]) {
  if (rows.column >= store.gemm.columns) return;
  if (store.finish.epilogue.has_aux()) return store.store_scaled(rows, sums);
  store.finish.template activate<float>(sums);
  if (__all_sync(0xffffffffU, is_for_pairs(store, place))) {
    store_pairs(store, rows, place, sums);
  } else {
    store.store_finished(rows, sums);
  }
}

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
