#pragma once
// Sums of kernel.cuh that its products may have got wrong, computed again where they are stored.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/store.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// Computes again what may be wrong in a warp's tiles, which are all stored as plain sums, and activates them. Sums became
/// outputs by 2^exponent. Not inlined: it has registers of its own.
template <class Mode>
__device__ __noinline__ void recompute_tma(const TapGemm& gemm, const TmaTiling& tiling, const ExactSource<>& exact,
                                           const float* bias, float* out, const Epilogue& epilogue, DynamicOrder order,
                                           Walk walk, SuspectTiles suspect_tiles, std::uint32_t last, int exponent, int warp) {
  const LightActivation activation(epilogue);
  const StoreFinish<float> finish(epilogue);
  constexpr int kRows = Mode::kHalf ? 8 : 16;
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
#pragma unroll 1
    for (int row = warp * kRows; row < (warp + 1) * kRows; ++row) {
      const int column = tma_column<Mode::kHalf>(tiling, row);
      if (column >= tiling.columns) continue;
      const std::int64_t channel = place.g * gemm.out_channels + place.column + column;
      float* const to = out + (place.n * gemm.G * gemm.out_channels + channel) * length + t0;
      const float offset = bias != nullptr ? bias[channel] : 0.0F;
      const int shift = Mode::kRows == TmaRows::whole ? 0 : tma_shift<Mode::kHalf>(tiling, row);
      const int end = static_cast<int>(min(static_cast<std::int64_t>(shift + tiling.position_step), length - t0));
      const auto at_of = [&](int own) { return t0 == 0 || own >= shift ? std::int64_t{own} : -1; };
      recompute_outputs(gemm, exact, place.n, place.g, place.column + column, place.position, end, to, at_of, offset, least,
                        suspect_count >= kNeverSplit);
      if (!epilogue.is_needed()) continue;
      __syncwarp();
#pragma unroll 1
      for (int at = static_cast<int>(threadIdx.x) % 32; at < end; at += 32) {
        if (at_of(at) < 0) continue;
        if constexpr (Mode::kAux)
          to[at] = finish(to[at], finish.others(to + at));
        else
          to[at] = activation(to[at]);
      }
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
