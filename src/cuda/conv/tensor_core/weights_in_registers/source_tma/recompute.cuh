#pragma once
// Sums of kernel.cuh that its products may have got wrong, computed again where they are stored.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/store.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// Computes again what may be wrong in a warp's tiles, which are all stored as plain sums, and activates them. Sums became
/// outputs by 2^exponent. Not inlined: it has registers of its own.
template <class Mode>
__device__ __noinline__ void repair_boxes(const TapGemm& form, const BoxesSteps& steps, const ExactSource& exact,
                                          const float* bias, float* out, const Epilogue& epilogue, DrawnOrder order, Walk walk,
                                          WrongTiles wrong, std::uint32_t last, int exponent, int warp) {
  const LightActivation activation(epilogue);
  const StoreFinish<float> finish(epilogue);
  constexpr int kRows = Mode::kHalf ? 8 : 16;
  int next = 0;
#pragma unroll 1
  for (;;) {
    Faults faults = 0;
    if (Mode::kMayDraw && steps.is_drawn) {
      if (last == kNoTile) return;
      walk.above = last;
      const std::uint32_t* const doubts = order.doubts(steps, walk, warp);
      faults = doubts[0];
      last = doubts[1];
    } else if (next < wrong.count) {
      faults = wrong.of[next].faults;
      walk.above = wrong.of[next++].above;
    } else {
      walk.advance();
      if (wrong.count < WrongTiles::kMost || !walk.more()) return;
      faults = wrong.of[WrongTiles::kMost - 1].faults;
    }
    const float least = ldexpf(least_right<typename Mode::Operand>(faults), exponent);
    const TilePlace place = walk.place(steps);
    const std::int64_t t0 = place.position + form.out_origin, length = form.out_length;
#pragma unroll 1
    for (int row = warp * kRows; row < (warp + 1) * kRows; ++row) {
      const int column = boxes_column<Mode::kHalf>(steps, row);
      if (column >= steps.columns) continue;
      const std::int64_t channel = place.g * form.out_channels + place.column + column;
      float* const to = out + (place.n * form.G * form.out_channels + channel) * length + t0;
      const float offset = bias != nullptr ? bias[channel] : 0.0F;
      const int shift = Mode::kRows == BoxesRows::whole ? 0 : boxes_shift<Mode::kHalf>(steps, row);
      const int end = static_cast<int>(min(static_cast<std::int64_t>(shift + steps.position_step), length - t0));
      const auto at_of = [&](int own) { return t0 == 0 || own >= shift ? std::int64_t{own} : -1; };
      repair_outputs(form, exact, place.n, place.g, place.column + column, place.position, end, to, at_of, offset, least,
                     faults >= kNeverFault);
      if (!epilogue.is_needed()) continue;
      __syncwarp();
#pragma unroll 1
      for (int at = static_cast<int>(threadIdx.x) % 32; at < end; at += 32) {
        if (at_of(at) < 0) continue;
        if constexpr (Mode::kBeside)
          to[at] = finish(to[at], finish.others(to + at));
        else
          to[at] = activation(to[at]);
      }
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
