#pragma once
// Applies the activation to outputs that were stored without it, so that the recompute could check their sums.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"

namespace polyphase::cuda::tensor_core {

/// Applies a light epilogue, a late one with kAux, to what a warp has stored bare and then repaired, columns [first, first +
/// columns) of its wrong tiles of `positions` positions. Many outputs at a time, since each takes long to arrive. Not inlined:
/// it has registers of its own.
template <bool kAux>
__device__ __noinline__ void finish_tiles(const TapGemm& gemm, const Tiling& tiling, const Epilogue& epilogue, float* out,
                                          Walk walk, SuspectTiles suspect_tiles, int first, int columns, int positions) {
  constexpr int kColumns = 2, kEach = 4;  // outputs of a lane at a time
  using Finish = std::conditional_t<kAux, StoreFinish<float>, LightActivation>;
  const Finish finish(epilogue);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();  // other lanes have repaired
#pragma unroll 1
  for (int i = 0; i < suspect_tiles.count; ++i) {
    walk.above = suspect_tiles.of[i].above;
    do {
      const TilePlace place = walk.place(tiling);
      const std::int64_t t_of_tile = gemm.out_stride * place.position + gemm.out_origin;
      const RowRange range(gemm, tiling, t_of_tile);
      const std::int64_t end = min(min(place.column + first + columns, place.column + tiling.columns), gemm.columns);
      const auto output = [&](std::int64_t column, int own) -> float* {
        if (column >= end || own >= positions) return nullptr;
        const std::int64_t channel = column / gemm.classes, row = place.g * gemm.out_channels + channel;
        float* const to = out + (place.n * gemm.G * gemm.out_channels + row) * gemm.out_length + t_of_tile;
        const std::int64_t shift = range.shift_of(to);
        const std::int64_t at = gemm.out_stride * own + (column - channel * gemm.classes) * gemm.out_class_step;
        const bool is_own = range.mask == 0 || (at >= shift && at < shift + range.length);
        return is_own && at >= range.begins && at < range.ends ? to + at : nullptr;
      };
#pragma unroll 1
      for (std::int64_t column = place.column + first; column < end; column += kColumns) {
#pragma unroll 1
        for (int own = lane; own < positions; own += 32 * kEach) {
          float* to[kColumns * kEach];
          float values[kColumns * kEach];
#pragma unroll
          for (int j = 0; j < kColumns * kEach; ++j) to[j] = output(column + j / kEach, own + 32 * (j % kEach));
#pragma unroll
          for (int j = 0; j < kColumns * kEach; ++j) values[j] = to[j] != nullptr ? *to[j] : 0.0F;
          if constexpr (kAux) {
            Epilogue::Others<float> others[kColumns * kEach];
#pragma unroll
            for (int j = 0; j < kColumns * kEach; ++j) others[j] = to[j] != nullptr ? finish.others(to[j]) : finish.nothing();
#pragma unroll
            for (int j = 0; j < kColumns * kEach; ++j) values[j] = finish(values[j], others[j]);
          } else {
#pragma unroll
            for (int j = 0; j < kColumns * kEach; ++j) values[j] = finish(values[j]);
          }
#pragma unroll
          for (int j = 0; j < kColumns * kEach; ++j)
            if (to[j] != nullptr) *to[j] = values[j];
        }
      }
      walk.advance();
    } while (i == SuspectTiles::kMost - 1 && walk.more());
  }
}

}  // namespace polyphase::cuda::tensor_core
