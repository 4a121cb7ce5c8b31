#pragma once
// The activation of outputs that were stored without it, so that they tell their sums to who looks for wrong ones.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"

namespace polyphase::cuda::tensor_core {

/// Applies a light epilogue, a late one with kLate, to what a warp has stored bare and then repaired, columns [first, first +
/// columns) of its wrong tiles of `positions` positions. Many outputs at a time, since each takes long to arrive. Not inlined:
/// it has registers of its own.
template <bool kLate>
__device__ __noinline__ void finish_tiles(const TapGemm& form, const StoredSteps& steps, const Epilogue& epilogue, float* out,
                                          Walk walk, WrongTiles wrong, int first, int columns, int positions) {
  constexpr int kColumns = 2, kEach = 4;  // outputs of a lane at a time
  using Finish = std::conditional_t<kLate, StoreFinish<float>, LightActivation>;
  const Finish finish(epilogue);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();  // other lanes have repaired
#pragma unroll 1
  for (int i = 0; i < wrong.count; ++i) {
    walk.above = wrong.of[i].above;
    do {
      const TilePlace place = walk.place(steps);
      const std::int64_t t_of_tile = form.out_stride * place.position + form.out_origin;
      const RowRange range(form, steps, t_of_tile);
      const std::int64_t end = min(min(place.column + first + columns, place.column + steps.columns), form.columns);
      const auto output = [&](std::int64_t column, int own) -> float* {
        if (column >= end || own >= positions) return nullptr;
        const std::int64_t channel = column / form.classes, row = place.g * form.out_channels + channel;
        float* const to = out + (place.n * form.G * form.out_channels + row) * form.out_length + t_of_tile;
        const std::int64_t shift = range.shift_of(to);
        const std::int64_t at = form.out_stride * own + (column - channel * form.classes) * form.out_class_step;
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
          if constexpr (kLate) {
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
    } while (i == WrongTiles::kMost - 1 && walk.more());
  }
}

}  // namespace polyphase::cuda::tensor_core
