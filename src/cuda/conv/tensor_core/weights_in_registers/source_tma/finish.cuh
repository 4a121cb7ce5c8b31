#pragma once
// What a consumer of source_tma does with a tile's sums: they become outputs in its staging, and tensor maps store them.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/producer.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/store.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// The staging of one consumer: its 128 threads write a tile's outputs there, and each warp's first thread stores them.
template <class Mode>
struct TmaStaging {
  const TapGemm& gemm;
  const TmaTiling& tiling;
  const TmaMaps& maps;
  const TmaLayout& layout;
  float* const data;
  const int consumer, warp, lane;
  int row = -1, t0 = 0;  // of the output, the first of the staged tile; -1: none is staged

  [[nodiscard]] __device__ __forceinline__ std::uint32_t address() const {
    return layout.staging + static_cast<std::uint32_t>(consumer * tiling.staging_bytes);
  }
  __device__ __forceinline__ void send() {
    if (lane == 0) send_boxes<Mode::kRows, Mode::kHalf>(gemm, tiling, maps, row, t0, address(), warp);
    row = -1;
  }
  /// Until all threads have written theirs.
  __device__ __forceinline__ void wait() const {
    ptx::fence_async_shared();
    ptx::named_barrier(1 + consumer, 128);
  }
  /// Until it may be written again.
  __device__ __forceinline__ void wait_until_sent() const {
    if (lane == 0) ptx::bulk_wait_read();
    ptx::named_barrier(1 + consumer, 128);
  }
  __device__ __forceinline__ void send_staged() {
    if (row < 0) return;
    wait();
    send();
  }
};

/// A tile's place in the output.
struct TmaPlace {
  int row, t0;         // of its first output
  std::uint32_t tile;  // of its row
  bool is_end;         // of its row
};

/// Starts to load the aux operand at `distance` from the output into the staging. Each load is a phase of the barrier.
template <class Mode>
__device__ __forceinline__ void bring_aux(const TmaStaging<Mode>& staging, const typename Mode::Aux& aux, int which,
                                          std::int64_t distance, TmaPlace place, float* out) {
  if constexpr (Mode::kAux) {
    if (place.is_end) {
      bring_ends<Mode::kRows, Mode::kHalf>(staging.gemm, staging.tiling, distance, place.t0, staging.data,
                                           out + place.row * staging.gemm.out_length, staging.warp, staging.lane);
      if (staging.warp == 0 && staging.lane == 0) ptx::mbarrier_arrive(staging.layout.aux(staging.consumer));
    } else if (staging.warp == 0 && staging.lane == 0) {
      load_aux_boxes<Mode::kRows, Mode::kHalf>(staging.tiling, aux.of[which], place.row, place.t0, staging.address(),
                                               staging.layout.aux(staging.consumer));
    }
  }
}

/// Records the tile if one of the warp's sums is suspect: in a list of this warp, or with dynamic tiles in the one that begins
/// at `last`. Returns whether one is.
template <class Mode>
__device__ __forceinline__ bool record_suspects(const TmaTiling& tiling, SuspectCount suspect_count, const Walk& walk,
                                                bool is_dynamic, const DynamicOrder& order, SuspectTiles& suspect_tiles,
                                                std::uint32_t& last, int warp, int lane, bool is_suspect_tile) {
  if (is_suspect_tile && is_dynamic) {
    std::uint32_t* const entry = order.suspect_entry(tiling, walk, warp);
    if (lane == 0) entry[0] = suspect_count, entry[1] = last;
    last = walk.above;
  } else if (is_suspect_tile) {
    suspect_tiles.add(walk.above, suspect_count);
  }
  return is_suspect_tile;
}

/// Makes outputs of a tile's sums, in the staging and for positions before the first.
template <class Mode>
struct TmaFinish {
  const Epilogue& epilogue;
  const TmaColumn (&columns)[Mode::kColumns];
  float* const out;
  const int beyond;        // more powers of two, which no float has
  const int staged_bytes;  // of a line of whole rows
  const bool is_rare;      // there is an epilogue, or `beyond`
  static constexpr bool kWhole = Mode::kRows == TmaRows::whole;

  [[nodiscard]] __device__ __forceinline__ TmaBefore before(const TmaStaging<Mode>& staging, TmaPlace place, int half) const {
    return tma_before<Mode::kHalf>(staging.gemm, staging.tiling, out, place.row, Mode::row_of(staging.warp, staging.lane, half),
                                   staging.lane % 4);
  }

  template <class Made>
  __device__ __forceinline__ void stage(const TmaStaging<Mode>& staging, TmaPlace place, float (&sums)[kTmaPositions / 2],
                                        const Made& made) const {
#pragma unroll
    for (int half = 0; half < Mode::kColumns; ++half) {
      const TmaColumn& own = columns[half];
      if constexpr (kWhole) {
        if (own.exists)
          stage_whole<Mode::kStacked>(own.place, own.factor, own.offset, sums, half, staged_bytes,
                                      reinterpret_cast<unsigned char*>(staging.data), made);
      } else {
        const int q = staging.lane % 4;
        stage_boxes<Mode::kRows, Mode::kStacked>(own, sums, half, q, made);
        if (!Mode::kAux && place.tile == 0)
          store_before<Mode::kStacked>(own, before(staging, place, half), sums, half, q, made);
      }
    }
  }

  __device__ __forceinline__ void scale(float (&sums)[kTmaPositions / 2]) const {
    if (beyond == 0) return;
#pragma unroll
    for (float& sum : sums) sum *= power_of_two(beyond);
  }

  /// `stays_plain`: the tile is recomputed later, which applies the epilogue.
  __device__ __forceinline__ void without_aux(const TmaStaging<Mode>& staging, TmaPlace place, float (&sums)[kTmaPositions / 2],
                                              bool stays_plain) const {
    if (!is_rare) return stage(staging, place, sums, TmaPlain());
    LightActivation activation(epilogue);
    if (!epilogue.is_needed() || stays_plain) activation.is_relu = false, activation.slope = 1.0F;
    scale(sums);
    stage(staging, place, sums, activation);
  }

  /// The load of the first aux operand has begun. `next` is the turn after that of this tile.
  __device__ __forceinline__ void with_aux(const TmaStaging<Mode>& staging, const typename Mode::Aux& aux, TmaPlace place,
                                           float (&sums)[kTmaPositions / 2], bool stays_plain, const TmaTurn& next) const {
    scale(sums);
    if (!kWhole && place.tile == 0) {
#pragma unroll
      for (int half = 0; half < Mode::kColumns; ++half)
        finish_before<Mode::kStacked>(columns[half], before(staging, place, half), sums, half, staging.lane % 4, epilogue,
                                      stays_plain);
    }
    const auto finish = [&](auto part, int of_phase) {
      constexpr FinishPart kPart = decltype(part)::value;
      if (place.is_end) ptx::named_barrier(1 + staging.consumer, 128);
      ptx::mbarrier_wait(staging.layout.aux(staging.consumer), static_cast<std::uint32_t>(of_phase & 1));
      if (stays_plain) return;
      with_finish<float, kPart>(epilogue, [&](const auto& own) {
#pragma unroll
        for (int half = 0; half < Mode::kColumns; ++half)
          stage_aux<Mode::kRows, Mode::kStacked, kPart>(columns[half], sums, half, staging.lane % 4, staged_bytes,
                                                        reinterpret_cast<unsigned char*>(staging.data), own);
      });
    };
    if (Mode::kBoth && epilogue.has_both()) {
      finish(FinishPartOf<FinishPart::derivative>(), 0);
      staging.wait();  // all have read it
      bring_aux<Mode>(staging, aux, 1, epilogue.residual, place, out);
      finish(FinishPartOf<FinishPart::residual>(), 1);
    } else {
      finish(FinishPartOf<FinishPart::all>(), next.tile / kPairs - 1);  // of this tile
    }
    if (stays_plain) stage(staging, place, sums, TmaPlain());
  }
};

}  // namespace polyphase::cuda::tensor_core
