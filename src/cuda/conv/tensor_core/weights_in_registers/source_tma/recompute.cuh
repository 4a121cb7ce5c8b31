#pragma once
// Recomputes the suspect sums of kernel.cuh after they are stored.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/store.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// Recomputes the suspect sums in a warp's tiles, which are all stored as plain sums, and activates them. Sums became outputs
/// by a factor of 2^exponent. Not inlined: it has registers of its own.
template <class Mode>
__device__ __noinline__ void recompute_tma(const TapGemm& gemm, const TmaTiling& tiling, const ExactSource<>& exact,
                                           const float* bias, float* out, const Epilogue& epilogue, DynamicOrder order,
                                           Walk walk, SuspectTiles suspect_tiles, std::uint32_t last, int exponent, int warp) {
  const LightActivation activation(epilogue);
  const StoreFinish<float> finish(epilogue);
  constexpr int kRows = Mode::kHalf ? 8 : 16;
  constexpr bool kIsWhole = Mode::kRows == TmaRows::whole;
  int next = 0;
#pragma unroll 1
  for (;;) {
    SuspectCount suspect_count = 0;
    if (Mode::kMayBeDynamic && tiling.is_dynamic) {
      if (last == kNoTile) return;
      walk.above = last;
      const std::uint32_t* const entry = order.suspect_entry(tiling, walk, warp);
      suspect_count = entry[0];
      last = entry[1];
    } else if (next < suspect_tiles.count) {
      suspect_count = suspect_tiles.of[next].suspect_count;
      walk.above = suspect_tiles.of[next++].above;
    } else {
      walk.advance();
      if (suspect_tiles.count < SuspectTiles::kMost || !walk.more()) return;
      suspect_count = suspect_tiles.of[SuspectTiles::kMost - 1].suspect_count;
    }
    const float least = ldexpf(least_right<typename Mode::Operand>(suspect_count), exponent);
    const TilePlace place = walk.place(tiling);
    const std::int64_t t0 = place.position + gemm.out_origin, length = gemm.out_length;
    LightColumns own;
    int shifts[2], ends[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int in_warp = static_cast<int>(threadIdx.x) % 32 / 4 + 8 * c, row = warp * kRows + in_warp % kRows;
      const int column = tma_column<Mode::kHalf>(tiling, row);
      const bool exists = in_warp < kRows && column < tiling.columns;
      const std::int64_t channel = place.g * gemm.out_channels + place.column + column;
      own.columns[c] = exists ? place.column + column : -1;
      own.to[c] = out + (place.n * gemm.G * gemm.out_channels + channel) * length + t0;
      own.offsets[c] = exists && bias != nullptr ? bias[channel] : 0.0F;
      shifts[c] = kIsWhole ? 0 : tma_shift<Mode::kHalf>(tiling, row);
      ends[c] = static_cast<int>(min(static_cast<std::int64_t>(shifts[c] + tiling.position_step), length - t0));
    }
    const auto at_of = [&](int c, int i) { return i < ends[c] && (t0 == 0 || i >= shifts[c]) ? std::int64_t{i} : -1; };
    recompute_light(gemm, exact, place.n, place.g, own, place.position, kTmaPositions, at_of,
                    {least, suspect_count >= kNeverSplit});
    if (!epilogue.is_needed()) continue;
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < kTmaPositions; i += 4) {
      const int at = i + static_cast<int>(threadIdx.x) % 4;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (own.columns[c] < 0 || at_of(c, at) < 0) continue;
        float* const to = own.to[c] + at;
        if constexpr (Mode::kAux)
          *to = finish(*to, finish.others(to));
        else
          *to = activation(*to);
      }
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
