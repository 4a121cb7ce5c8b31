#pragma once
// How tiles whose rows begin at different places modulo a sector of 32 bytes are written. A block works on runs of neighbouring
// tiles, its consumers in turns; what of a tile lies behind a row's last whole sector waits for the next one. So tiles do not
// overlap, and each row is written from a sector on: through shared memory and tensor maps of the rows that begin alike. The
// copies go on while the next tile is multiplied.

#include <cstdint>

#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/sm90/tensor_core_resident_rows_maps.hpp"
#include "cuda/conv/sm90/tensor_core_resident_rows_steps.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// Two neighbours, stored as one.
template <class S>
struct __align__(2 * sizeof(S)) Pair {
  S even, odd;
};

/// A light activation of staged numbers, as Epilogue::activate() has it but without calls, which would put wgmmas in series; in
/// a loop of its own, since a store that does not fit the instruction cache takes half as long again.
struct LightActivation {
  bool is_any, is_relu;
  float slope;
  [[nodiscard]] static __host__ __device__ constexpr bool is_light(Activation activation) {
    return activation == Activation::none || activation == Activation::relu || activation == Activation::leaky_relu;
  }
  __device__ explicit LightActivation(const Epilogue& epilogue)
      : is_any(epilogue.activation != Activation::none),
        is_relu(epilogue.activation == Activation::relu),
        slope(static_cast<float>(epilogue.slope)) {}
  template <class S>
  __device__ __forceinline__ S operator()(S number) const {
    const auto value = static_cast<float>(number);
    return value < 0.0F ? static_cast<S>(is_relu ? 0.0F : slope * value) : number;
  }
  /// Eight numbers at a time.
  template <class S>
  __device__ __forceinline__ void apply(S* staged, int count, int thread) const {
    struct alignas(16) Eight {
      S at[8];
    };
    auto* const all = reinterpret_cast<Eight*>(staged);
#pragma unroll 1
    for (int i = thread; i < count / 8; i += 128) {
      Eight numbers = all[i];
#pragma unroll
      for (S& number : numbers.at) number = (*this)(number);
      all[i] = numbers;
    }
  }
};

/// What is staged of a tile: of each column the positions from a sector on, of the first tile of a run from the second one on.
struct CarryWindow {
  int t0;      // the tile's first position
  int skip;    // positions that its windows leave out
  int width;   // of a window
  int sector;  // positions
  __device__ __forceinline__ CarryWindow(const RowSteps& steps, std::int64_t first, bool begins_run)
      : t0(static_cast<int>(first)),
        skip(begins_run ? steps.aligned : 0),
        width(kCarryPositions - skip),
        sector(steps.aligned) {}
  /// Positions from a row's sector to t0.
  __device__ __forceinline__ int shift(const StoreMaps& maps, int own) const { return (t0 + maps.offset[own]) & (sector - 1); }
};

/// Where the consumers of a block keep what the next tile stores.
template <class S>
struct Kept {
  Pair<S>*own,
      *before;  // this consumer's and the other's, whose tile is the one before
  std::uint32_t ready,
      filled;            // barriers: this consumer's is there, the other's is
  std::uint32_t parity;  // of the other's tile
};

/// Where a thread stages columns 2q and 2q + 1 of every eight, two positions of each half of the tile.
template <class S, int kPass>
struct CarryPlace {
  int at[2][2];     // bytes from the staging: [column][half]
  bool has[2][2];   // whether there is something for that place
  bool carries[2];  // whether it is what the tile before kept, and the tile's
                    // own is to be kept
  __device__ __forceinline__ CarryPlace(const RowSteps& steps, const StoreMaps& maps, const CarryWindow& window, int row,
                                        int position, int lane) {
    constexpr int kBytes = static_cast<int>(sizeof(S));
    const int classes = steps.store_classes, place = 31 - __clz(classes);
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int column = 2 * (lane % 4) + b, local = column & (classes - 1);
      const int from = position + window.shift(maps, (row + local) & (classes - 1));
      const int base = (local * (kPass >> place) + (column >> place)) * window.width - window.skip;
      carries[b] = from + 64 >= kCarryPositions;
      has[b][0] = from >= window.skip;
      has[b][1] = !carries[b] || window.skip == 0;
      at[b][0] = (base + from) * kBytes;
      at[b][1] = (base + from + 64 - (carries[b] ? kCarryPositions : 0)) * kBytes;
    }
  }
};

/// Sends what is staged; every fourth class's box, one lane of each warp.
template <class S, int kPass>
__device__ __forceinline__ void send_carried(const RowSteps& steps, const StoreMaps& maps, const CarryWindow& window, int row,
                                             int warp, std::uint32_t staging) {
  const int classes = steps.store_classes, place = 31 - __clz(classes);
  const int bytes = (kPass >> place) * window.width * static_cast<int>(sizeof(S));
  for (int local = warp; local < classes; local += 4) {
    const int own = (row + local) & (classes - 1);
    const CUtensorMap* map = window.skip == 0 ? &maps.whole[own] : &maps.begin[own];
    ptx::tensor_store(map, window.t0 + maps.offset[own] - window.shift(maps, own) + window.skip, (row + local) >> place, 0,
                      staging + static_cast<std::uint32_t>(local * bytes));
  }
  ptx::bulk_commit();
}

/// The same of a tile at the ends of its rows, or whose numbers are not finished, by finish(number, column).
template <class T, class S, int kPass, class Finish>
__device__ __forceinline__ void store_carried_edges(const RowSteps& steps, const StoreMaps& maps, const CarryWindow& window,
                                                    std::int64_t row, std::int64_t length, int warp, int lane, const S* staging,
                                                    const Finish& finish, T* __restrict__ out) {
  const int classes = steps.store_classes, place = 31 - __clz(classes);
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

/// Stages a tile and sends it. `row`: its first of all; `thread`: of the consumer, whose barrier is `barrier`. Where is_plain
/// is false, what is staged goes through finish(number, column).
template <class T, class S, int kN, int kPass, class Finish>
__device__ __forceinline__ void store_carried(const float (&sums)[2][kN / 2], float scale, const float* biases, bool adds_bias,
                                              bool is_plain, const LightActivation& active, const RowSteps& steps,
                                              const StoreMaps& maps, const CarryWindow& window, std::int64_t row,
                                              std::int64_t length, int position, int thread, int barrier,
                                              unsigned char* staging, const Kept<S>& kept, const Finish& finish,
                                              T* __restrict__ out) {
  const int warp = thread / 32, lane = thread % 32, first_row = static_cast<int>(row);
  const int further = ((8 * window.width) >> (31 - __clz(steps.store_classes))) * static_cast<int>(sizeof(S));
  const CarryPlace<S, kPass> place(steps, maps, window, first_row, position, lane);
  if (warp == 3) ptx::mbarrier_wait(kept.filled,
                                    kept.parity);  // it alone has positions to keep
#pragma unroll
  for (int pass = 0; pass < kN / kPass; ++pass) {
    if (lane == 0) ptx::bulk_wait_read();
    ptx::named_barrier(barrier, 128);
    unsigned char* to = staging;
#pragma unroll
    for (int i = 0; i < kPass / 8; ++i, to += further) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int group = kPass / 8 * pass + i;
        const float offset = adds_bias ? biases[8 * group + 2 * (lane % 4) + b] : 0.0F;
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const float* pair = &sums[m][4 * group + b];
          Pair<S> value{static_cast<S>(fmaf(pair[0], scale, offset)), static_cast<S>(fmaf(pair[2], scale, offset))};
          if (m == 1 && place.carries[b]) {
            const int word = (2 * group + b) * 32 + lane;
            const Pair<S> before = kept.before[word];
            kept.own[word] = value;
            value = before;
          }
          if (place.has[b][m]) *reinterpret_cast<Pair<S>*>(to + place.at[b][m]) = value;
        }
      }
    }
    if (warp == 3 && pass == kN / kPass - 1) ptx::mbarrier_arrive(kept.ready);
    if (adds_bias && active.is_any) {
      ptx::named_barrier(barrier, 128);
      active.apply(reinterpret_cast<S*>(staging), kPass * window.width, thread);
    }
    if (is_plain) {
      ptx::fence_async_shared();
      ptx::named_barrier(barrier, 128);
      if (lane == 0) send_carried<S, kPass>(steps, maps, window, first_row + kPass * pass, warp, ptx::shared_address(staging));
    } else {
      ptx::named_barrier(barrier, 128);
      const auto of_pass = [&](S number, int column) { return finish(number, kPass * pass + column); };
      store_carried_edges<T, S, kPass>(steps, maps, window, row + kPass * pass, length, warp, lane,
                                       reinterpret_cast<const S*>(staging), of_pass, out);
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
