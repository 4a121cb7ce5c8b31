#pragma once
// Stores tiles whose rows begin at different offsets in a 32-byte sector. A block works on runs of neighbouring tiles, its
// consumers in turn; the part of a tile after a row's last whole sector is kept for the next tile. So tiles do not overlap, and
// each row is written from a sector on, through shared memory and one tensor map per class of rows. The copies run during the
// products of the next tile.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/bias.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/maps.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// Two neighbours that are stored as one number.
template <class S>
struct __align__(2 * sizeof(S)) Pair {
  S even, odd;
};
template <class S>
__device__ __forceinline__ std::conditional_t<sizeof(S) == 2, std::uint32_t, float2> pair_up(S even, S odd) {
  if constexpr (sizeof(S) == 2) {
    const Pair<S> pair{even, odd};
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    return make_float2(even, odd);
  }
}
__device__ __forceinline__ std::uint32_t choose(bool first, std::uint32_t a, std::uint32_t b) { return first ? a : b; }
__device__ __forceinline__ float2 choose(bool first, float2 a, float2 b) {
  return make_float2(first ? a.x : b.x, first ? a.y : b.y);
}

/// Activates `count` staged numbers with a consumer's threads, eight at a time. This is a separate loop because a store that
/// exceeds the instruction cache takes half as long again.
template <class S>
__device__ __forceinline__ void activate_staged(const LightActivation& active, S* staged, int count, int thread) {
  struct alignas(16) Eight {
    S at[8];
  };
  auto* const all = reinterpret_cast<Eight*>(staged);
#pragma unroll 1
  for (int i = thread; i < count / 8; i += 128) {
    Eight numbers = all[i];
#pragma unroll
    for (S& number : numbers.at) {
      const auto value = static_cast<float>(number);
      number = value < 0.0F ? static_cast<S>(active(value)) : number;
    }
    all[i] = numbers;
  }
}

/// The part of a tile that is staged: for each column the positions from a sector on; in the first tile of a run from the
/// second sector on.
struct CarryWindow {
  int t0;      // the tile's first position
  int skip;    // positions that its windows leave out
  int width;   // of a window
  int sector;  // positions
  __device__ __forceinline__ CarryWindow(const Stride1Tiling& tiling, std::int64_t first, bool begins_run)
      : t0(static_cast<int>(first)),
        skip(begins_run ? tiling.aligned : 0),
        width(kCarryPositions - skip),
        sector(tiling.aligned) {}
  /// Positions from a row's sector to t0.
  __device__ __forceinline__ int shift(const StoreMaps& maps, int own) const { return (t0 + maps.offset[own]) & (sector - 1); }
};

/// Where the consumers of a block keep what the next tile stores: one sector per column, the first of the next tile's window.
inline constexpr int kKeptBytes = 32;
struct Kept {
  std::uint32_t own;            // this consumer's
  const unsigned char* before;  // the other's, whose tile is the previous one
  std::uint32_t ready, filled;  // barriers: this consumer's data is ready and the other's has been read; the other's signal
  std::uint32_t parity;         // of the other's tile
};

/// Where a thread stages columns 2q and 2q + 1 of every eight, two positions of each half of a warp's. Positions that the next
/// tile stores go to the kept sectors; positions that the tile leaves out go to unused places there. Half of the lanes begin
/// with the second half, so that bank conflicts are at most two-way.
template <class S, int kPass>
struct CarryPlace {
  bool swaps;
  std::uint32_t at[2][2];         // [column][first, second store]
  std::uint32_t further[2][2];    // from there to eight columns further on
  std::uint32_t next_pass[2][2];  // from there to the next pass
  __device__ __forceinline__ CarryPlace(const Stride1Tiling& tiling, const StoreMaps& maps, const CarryWindow& window, int row,
                                        int position, int half_step, int lane, std::uint32_t staging,
                                        std::uint32_t staged_further, std::uint32_t kept)
      : swaps(lane % 2 != 0) {
    constexpr auto kBytes = static_cast<std::uint32_t>(sizeof(S));
    const int classes = tiling.store_classes, place = 31 - __clz(classes);
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int column = 2 * (lane % 4) + b, local = column & (classes - 1);
      const int shift = window.shift(maps, (row + local) & (classes - 1));
      const int base = (local * (kPass >> place) + (column >> place)) * window.width - window.skip;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int from = position + shift + ((i == 1) != swaps ? half_step : 0);
        const bool is_kept = from < window.skip || from >= kCarryPositions;
        at[b][i] = is_kept ? kept + static_cast<std::uint32_t>(column * kKeptBytes) + from % kCarryPositions * kBytes
                           : staging + static_cast<std::uint32_t>(base + from) * kBytes;
        further[b][i] = is_kept ? 8 * kKeptBytes : staged_further;
        next_pass[b][i] = is_kept ? kPass * kKeptBytes : 0;
      }
    }
  }
};

/// The sectors that the previous tile kept of a pass' columns, copied into the staging by one warp, two lanes per column. The
/// same warp writes the tile's own part of a sector afterwards.
template <int kPass>
struct CarriedSectors {
  static constexpr int kCount = kPass / 16;
  uint4 of[kCount];
  __device__ __forceinline__ void load(const unsigned char* kept, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) of[i] = *reinterpret_cast<const uint4*>(kept + 16 * lane + 512 * i);
  }
  /// `further`: bytes from a window to that eight columns further on.
  __device__ __forceinline__ void stage(int classes, int row_bytes, int further, unsigned char* staging, int lane) const {
    const int place = 31 - __clz(classes), column = lane / 2, local = column & (classes - 1);
    staging += (local * (kPass >> place) + (column >> place)) * row_bytes + lane % 2 * 16;
#pragma unroll
    for (int i = 0; i < kCount; ++i, staging += 2 * further) *reinterpret_cast<uint4*>(staging) = of[i];
    __syncwarp();
  }
};

/// Sends the staged data; one lane of each warp sends every fourth class's box.
template <class S, int kPass>
__device__ __forceinline__ void send_carried(const Stride1Tiling& tiling, const StoreMaps& maps, const CarryWindow& window,
                                             int row, int warp, std::uint32_t staging) {
  const int classes = tiling.store_classes, place = 31 - __clz(classes);
  const int bytes = (kPass >> place) * window.width * static_cast<int>(sizeof(S));
#pragma unroll 1
  for (int local = warp; local < classes; local += 4) {
    const int own = (row + local) & (classes - 1);
    const CUtensorMap* map = window.skip == 0 ? &maps.whole[own] : &maps.begin[own];
    ptx::tensor_store(map, window.t0 + maps.offset[own] - window.shift(maps, own) + window.skip, (row + local) >> place, 0,
                      staging + static_cast<std::uint32_t>(local * bytes));
  }
  ptx::bulk_commit();
}

/// The same for a tile at the ends of its rows, or whose numbers are not finite, through finish(number, column).
template <class T, class S, int kPass, class Finish>
__device__ __forceinline__ void store_carried_edges(const Stride1Tiling& tiling, const StoreMaps& maps,
                                                    const CarryWindow& window, std::int64_t row, std::int64_t length, int warp,
                                                    int lane, const S* staging, const Finish& finish, T* __restrict__ out) {
  const int classes = tiling.store_classes, place = 31 - __clz(classes);
#pragma unroll 1
  for (int column = warp; column < kPass; column += 4) {
    const int local = column & (classes - 1), shift = window.shift(maps, (static_cast<int>(row) + local) & (classes - 1));
    const S* from = staging + (local * (kPass >> place) + (column >> place)) * window.width;
    T* to = out + (row + column) * length;
#pragma unroll 1
    for (int i = lane; i < window.width; i += 32) {
      const std::int64_t t = static_cast<std::int64_t>(window.t0) - shift + window.skip + i;
      if (t >= 0 && t < length) to[t] = finish(from[i], column);
    }
  }
}

/// Stages a tile and sends it. `row`: its first, counted over all rows; `warp`: of the consumer, whose barrier is `barrier`. If
/// is_plain is false, staged numbers pass through finish(number, column).
template <class Mode, int kN, int kPass, class T, class Finish>
__device__ __forceinline__ void store_carried(const float (&sums)[2][kN / 2], float scale, const float* biases,
                                              bool is_finished, bool is_plain, const LightActivation& active,
                                              const Stride1Tiling& tiling, const StoreMaps& maps, const CarryWindow& window,
                                              std::int64_t row, std::int64_t length, int position, int warp, int lane,
                                              int barrier, unsigned char* staging, const Kept& kept, const Finish& finish,
                                              T* __restrict__ out) {
  using S = Staged<T>;
  constexpr int kBytes = static_cast<int>(sizeof(S));
  const auto first_row = static_cast<int>(row);
  const int further = ((8 * window.width) >> (31 - __clz(tiling.store_classes))) * kBytes;
  const std::uint32_t staged = ptx::shared_address(staging);
  const CarryPlace<S, kPass> place(tiling, maps, window, first_row, position, Mode::kHalfStep, lane, staged,
                                   static_cast<std::uint32_t>(further), kept.own);
  // Warp 0 reads the other's kept sectors and, at the begin of a run, fills the unused ones; only warp 3 has positions to keep.
  const bool shares = warp == 0 || warp == 3;
  if (shares) ptx::mbarrier_wait(kept.filled, kept.parity);
#pragma unroll
  for (int pass = 0; pass < kN / kPass; ++pass) {
    const SumsOf<Mode, kPass> finished(scale, biases + kPass * pass, is_finished, lane);
    if (lane == 0) ptx::bulk_wait_read();
    ptx::named_barrier(barrier, 128);
    if (warp == 0 && window.skip == 0) {
      CarriedSectors<kPass> carried;
      carried.load(kept.before + kPass * pass * kKeptBytes, lane);
      carried.stage(tiling.store_classes, kCarryPositions * kBytes, further, staging, lane);
    }
    std::uint32_t at[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      at[i / 2][i % 2] = place.at[i / 2][i % 2] + static_cast<std::uint32_t>(pass) * place.next_pass[i / 2][i % 2];
#pragma unroll
    for (int i = 0; i < kPass / 8; ++i) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const auto half = [&](int m) {
          const float* of = &sums[m][4 * (kPass / 8 * pass + i) + b];
          return pair_up(static_cast<S>(finished(of[0], i, b)), static_cast<S>(finished(of[2], i, b)));
        };
        const auto first = half(0), second = half(1);
        ptx::store_shared(at[b][0], choose(place.swaps, second, first));
        ptx::store_shared(at[b][1], choose(place.swaps, first, second));
        at[b][0] += place.further[b][0];
        at[b][1] += place.further[b][1];
      }
    }
    if (shares && pass == kN / kPass - 1) ptx::mbarrier_arrive(kept.ready);
    if (is_finished && active.is_there) {
      ptx::named_barrier(barrier, 128);
      activate_staged(active, reinterpret_cast<S*>(staging), kPass * window.width, 32 * warp + lane);
    }
    if (is_plain) {
      ptx::fence_async_shared();
      ptx::named_barrier(barrier, 128);
      if (lane == 0) send_carried<S, kPass>(tiling, maps, window, first_row + kPass * pass, warp, staged);
    } else {
      ptx::named_barrier(barrier, 128);
      const auto of_pass = [&](S number, int column) { return finish(number, kPass * pass + column); };
      store_carried_edges<T, S, kPass>(tiling, maps, window, row + kPass * pass, length, warp, lane,
                                       reinterpret_cast<const S*>(staging), of_pass, out);
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
