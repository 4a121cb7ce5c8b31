#pragma once
// Copies rows of the source to shared memory unchanged, and reads them from there into the registers of wgmma (kernel.cuh).

#include <cstdint>
#include <type_traits>

#include "cuda/conv/tensor_core/operand/convert_rows.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/maps.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// The source of a tile: row 0 at the tile's first element, and the elements from there that are inside a row.
template <class T>
struct Stride1Tile {
  const T* base;
  std::int64_t row, element;  // where base is in the tensor
  int first, last;
  __device__ __forceinline__ Stride1Tile(const TapGemm& gemm, const TilePlace& place, const T* source)
      : row((place.n * gemm.G + place.g) * gemm.rows), element(place.position + gemm.source_origin) {
    base = source + row * gemm.source_length + element;
    first = static_cast<int>(max(-element, static_cast<std::int64_t>(-0x7fffffff)));
    last = static_cast<int>(min(gemm.source_length - element, static_cast<std::int64_t>(0x7fffffff)));
  }
};

/// Memory of the dynamic scheduler: one counter per weight tile; then per (tile, warp) the warp's previous suspect tile,
/// because results must not depend on which block took which tile.
struct Stride1Order {
  std::uint32_t* memory;
  static constexpr int kWarps = 4;
  __device__ __forceinline__ std::uint32_t* before(const Stride1Tiling& tiling, const Walk& walk, std::uint32_t number,
                                                   int warp) const {
    const auto tiles = static_cast<std::uint32_t>(tiling.weight_tiles);
    return memory + tiles + (static_cast<std::int64_t>(number) * tiles + walk.tile) * kWarps + warp;
  }
  /// Words of `memory`.
  [[nodiscard]] static std::int64_t words(const Stride1Tiling& tiling) {
    return tiling.weight_tiles + tiling.blocks * tiling.run * kWarps;
  }
};

/// The tiles of a consumer: every other one of a block's runs, which have Stride1Tiling::run tiles with kRuns, else two. With
/// kBroadcast a copying thread broadcasts each run but the first to the block when all of the previous one has been issued;
/// else runs are assigned statically.
template <bool kRuns, bool kBroadcast>
struct Stride1Walk : Walk {
  int pair, at;                 // at: tile of the run
  std::uint32_t broadcast = 0;  // runs
  __device__ Stride1Walk(const Tiling& tiling, int pair_) : Walk(tiling, pair_), pair(pair_), at(pair_) {
    if (!kRuns) return;
    above = tiling.by_weight_tiles.divide(blockIdx.x);
    step = tiling.by_weight_tiles.divide(gridDim.x);
  }
  template <class Stride1Layout>
  __device__ __forceinline__ void advance(const Stride1Tiling& tiling, const Stride1Layout& layout) {
    if (kRuns && (at += kPairs) < length(tiling)) return;
    at = pair;
    if (!kBroadcast) {
      above += step;
      return;
    }
    const std::uint32_t slot = layout.broadcast(broadcast);
    ptx::mbarrier_wait(slot, broadcast / kBroadcastRuns & 1);
    // Through a shuffle the compiler knows that it is uniform in a warp.
    above = __shfl_sync(0xffffffffU, ptx::load_shared(slot + 8), 0) + static_cast<std::uint32_t>(kRuns ? 0 : pair);
    ++broadcast;
  }
  __device__ __forceinline__ bool ends_run(const Stride1Tiling& tiling) const {
    return kBroadcast && (!kRuns || at + kPairs >= length(tiling));
  }
  /// The block's next run, from the first consumer's walk. The second run is static: the counter may not be zero yet.
  __device__ __forceinline__ std::uint32_t draw(const Stride1Tiling& tiling, const Stride1Order& order) const {
    if (broadcast == 0 || !tiling.is_dynamic) return above + step;
    wait_for_grid_before();
    return 2 * step + atomicAdd(order.memory + tile, kRuns ? 1U : static_cast<std::uint32_t>(kPairs));
  }
  template <class Stride1Layout>
  __device__ __forceinline__ void tell(const Stride1Layout& layout, std::uint32_t next) const {
    const std::uint32_t slot = layout.broadcast(broadcast);
    ptx::store_shared(slot + 8, next);
    ptx::mbarrier_arrive(slot);
  }
  /// Tiles of the run: the last run of a row may have fewer.
  __device__ __forceinline__ int length(const Stride1Tiling& tiling) const {
    const std::uint32_t n = tiling.by_position_tiles.divide(above);
    return above - n * tiling.by_position_tiles.divisor + 1 == tiling.by_position_tiles.divisor ? tiling.last_run : tiling.run;
  }
  /// The tile's number, and its inverse.
  __device__ __forceinline__ std::uint32_t number(const Stride1Tiling& tiling) const {
    return kRuns ? above * static_cast<std::uint32_t>(tiling.run) + static_cast<std::uint32_t>(at) : above;
  }
  __device__ __forceinline__ void go_to(const Stride1Tiling& tiling, std::uint32_t number) {
    const auto run = static_cast<std::uint32_t>(kRuns ? tiling.run : 1);
    above = number / run;
    if (kRuns) at = static_cast<int>(number - above * run);
  }
  /// The place of the consumer `further` after this one.
  __device__ __forceinline__ TilePlace place(const Stride1Tiling& tiling, int further = 0) const {
    Walk own = *this;
    if (!kRuns) own.above += static_cast<std::uint32_t>(further);
    TilePlace place = own.Walk::place(tiling);
    if (kRuns) place.position += (at + further) * kCarryPositions;
    return place;
  }
};

/// The place of row `row` of a step in its stage, in rows; rows of one map are neighbours.
__device__ __forceinline__ int slot_of(const Stride1Tiling& tiling, int row) {
  return tiling.classes == 2 ? row % 2 * (kStride1RowsOfStep / 2) + row / 2 : row;
}

/// Copies a step that is inside its rows, from row `row` (counted over all) and element `element` on: one box per class.
template <class T>
__device__ __forceinline__ void copy_boxes(const Stride1Tiling& tiling, const Stride1Maps& maps, std::int64_t row,
                                           std::int64_t element, std::uint32_t to, std::uint32_t barrier) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  ptx::mbarrier_arrive_expect(barrier, static_cast<std::uint32_t>(tiling.stage_bytes));
  for (int i = 0; i < tiling.classes; ++i, ++row) {
    const int own = tiling.classes == 2 ? static_cast<int>(row % 2) : 0;
    ptx::tensor_copy(to + static_cast<std::uint32_t>(i * (tiling.stage_bytes / 2)), &maps.map[own],
                     (static_cast<int>(element) + maps.offset[own]) & -kVector,
                     static_cast<int>(tiling.classes == 2 ? row / 2 : row), 0, barrier);
  }
}

/// Copies all steps of a consumer's tiles (kBoth: of both, in turn), each row from the 16-byte boundary before it on, with
/// zeros outside the rows. Uses kThreads threads, or one thread with a few large copies if nothing is outside. Rows begin and
/// end at whole 4-byte words.
template <class T, int kThreads, bool kBoth, bool kRuns, class Stride1Layout>
__device__ __forceinline__ void copy_rows(const TapGemm& gemm, const Stride1Tiling& tiling, const Stride1Maps& maps,
                                          const Stride1Layout& layout, const Stride1Order& order, const T* __restrict__ source,
                                          int pair, int thread) {
  constexpr int kBytes = static_cast<int>(sizeof(T)), kOfRow = kThreads / kStride1RowsOfStep;
  const int row = thread / kOfRow, column = thread % kOfRow;
  const std::int64_t further = kStride1RowsOfStep * gemm.source_length * kBytes;
  const auto slot = static_cast<std::uint32_t>(slot_of(tiling, row) * tiling.pitch);
  Ring ring;
  Stride1Walk<kRuns, kBytes == 4> walk(tiling, kBoth ? 0 : pair);
  std::uint32_t next = 0;  // run, in the thread that takes it
  for (bool is_second = false; walk.more();) {
    const bool draws = pair == 0 && thread == 0 && walk.ends_run(tiling);
    if (draws && !is_second) next = walk.draw(tiling, order);
    const Stride1Tile<T> tile(gemm, walk.place(tiling, is_second ? 1 : 0), source);
    const T* begin = tile.base + row * gemm.source_length;
    const auto offset = static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) % 16), end = offset + tiling.span * kBytes;
    const auto* from = reinterpret_cast<const unsigned char*>(begin) - offset;
    const bool inside = tile.first <= 0 && tiling.span <= tile.last;
    // A map has zeros outside its rows. Before a row's first element is the previous row, if rows begin within a map.
    const bool by_maps = tiling.classes != 0 && (tile.first <= 0 || maps.offset[0] + maps.offset[kStride1ClassesMost - 1] == 0);
    auto rows = static_cast<int>(gemm.rows) - row;
    for (int step = 0; step < tiling.count; ++step, rows -= kStride1RowsOfStep, from += further) {
      const std::uint32_t stage = layout.ring + static_cast<std::uint32_t>(ring.stage * tiling.stage_bytes);
      const std::uint32_t own = stage + slot, full = layout.full(ring.stage);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      if (by_maps && (step + 1) * kStride1RowsOfStep <= gemm.rows) {
        if (thread == 0)
          copy_boxes<T>(tiling, maps, tile.row + step * kStride1RowsOfStep, tile.element, stage, full);
        else
          ptx::mbarrier_arrive(full);
      } else {
        if (inside && rows > 0) {
#pragma unroll 4
          for (int i = 16 * column; i < end; i += 16 * kOfRow) ptx::copy_vector(own + static_cast<std::uint32_t>(i), from + i);
        } else {
          for (int i = offset / 4 * 4 + 4 * column; i < end; i += 4 * kOfRow) {
            const int e = (i - offset) / kBytes;
            const bool exists = e >= tile.first && e < tile.last && rows > 0;
            ptx::copy_word_or_zero(own + static_cast<std::uint32_t>(i), exists ? static_cast<const void*>(from + i) : source,
                                   exists);
          }
        }
        ptx::copy_arrive(full);
      }
      ring.advance(tiling.stages);
    }
    if (kBoth) is_second = !is_second && (kRuns || walk.above + 1 < walk.count);
    if (is_second) continue;
    if (draws) walk.tell(layout, next);
    walk.advance(tiling, layout);
  }
}

/// How tiles are stored: carried if Stride1Tiling::store_classes is not zero; aux with a residual or a derivative. These are
/// separate kernels: tf32 was up to a tenth slower in one kernel that contained the others' code.
enum class Stride1Stores : int { tiles, carried, aux };

/// How a kernel's threads read rows: slot s of a warp has positions 2s and 2s + 1 of each of its two groups of 16, so that a
/// tap's elements are, except for one, those of the previous tap. The halves share none: a register that outstanding products
/// read is not written. kParity: Stride1Tiling::parity.
template <class Operand_, int kHalves_, int kTaps_, Stride1Parity kParity_, Stride1Stores kStores_ = Stride1Stores::tiles>
struct Stride1Mode {
  using Operand = Operand_;
  static constexpr int kHalves = kHalves_, kTaps = kTaps_;
  static constexpr Stride1Parity kParity = kParity_;
  static constexpr int kBytes = static_cast<int>(sizeof(typename Operand::Source));
  static constexpr bool kInTurns = takes_turns(Operand::kParts, kBytes);
  static constexpr bool kBeginsAtBias = !Operand::kScaled;  // sums begin with a product of the biases, which have its type
  static constexpr bool kCarries = kStores_ == Stride1Stores::carried;
  static constexpr bool kAux = kStores_ == Stride1Stores::aux;
  static constexpr int kCopiers = kInTurns ? 128 : 64;  // threads that fill a ring
  static constexpr int kWindow = 2 + kTaps - 1;         // elements of a row for two positions
  static constexpr int kElements = kHalves * kWindow;
  static constexpr int kBefore = kParity == Stride1Parity::odd ? 1 : 0;  // elements of a pair before the first
  static constexpr int kPairsRead = (kBefore + kWindow + 1) / 2;         // read for a window
  /// Per warp: its second half is placed so far after the first that the numbers of a column are in other banks.
  static constexpr int kHalfStep = kHalves == 1 ? 64 : 64 / kBytes;
  static constexpr int kWarpsBetween = kHalfStep / 16;
  static __device__ __forceinline__ int position(int warp) {
    return warp / kWarpsBetween * (2 * kHalfStep) + warp % kWarpsBetween * 16;
  }
  /// The element that position h of half m reads at a tap.
  static constexpr int element(int m, int h, int tap) { return m * kWindow + h + tap; }
};

/// A thread's unconverted elements of a step: rows 2q, 2q + 1, 2q + 8, 2q + 9; 16-bit elements are two per word.
template <class Mode>
struct Stride1Raw {
  static constexpr bool kPaired = Mode::kBytes == 2;
  std::conditional_t<kPaired, std::uint32_t, float> v[kPaired ? Mode::kHalves * Mode::kPairsRead : Mode::kElements][4];
};

/// The same converted to the format of wgmma: pairs of rows.
template <class Mode>
struct Stride1Words {
  std::uint32_t v[Mode::kElements][Mode::Operand::kParts][2];
};

template <class Mode>
struct Stride1Reader {
  using Operand = typename Mode::Operand;
  const Stride1Tiling& tiling;
  float scale;
  std::uint32_t least;     // of magnitudes that split exactly, doubled less one
  int position, lane_row;  // this thread's first ones
  int at[2] = {};          // bytes from a stage to this thread's first element, for rows 2q and 2q + 1
  Seen seen;
  SuspectCount small;  // elements of the tile that were too small

  __device__ __forceinline__ Stride1Reader(const Stride1Tiling& steps_, int exponent, int warp, int lane)
      : tiling(steps_),
        scale(power_of_two(exponent)),
        least(2 * SplitRange(exponent).least - 1),
        position(Mode::position(warp) + 2 * (lane / 4)),
        lane_row(lane % 4 * 2) {}

  __device__ __forceinline__ void begin_tile(const TapGemm& gemm, const Stride1Tile<typename Operand::Source>& tile) {
    const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(tile.base));
    const std::uint32_t length = static_cast<std::uint32_t>(gemm.source_length) * Mode::kBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      at[i] = slot_of(tiling, lane_row + i) * tiling.pitch +
              static_cast<int>((address + static_cast<std::uint32_t>(lane_row + i) * length) & 15U) + position * Mode::kBytes;
    seen = Seen();
    small = 0;
  }

  __device__ __forceinline__ void load(const unsigned char* stage, Stride1Raw<Mode>& to) const {
    const int further = (tiling.classes == 2 ? 4 : 8) * tiling.pitch;
#pragma unroll
    for (int row = 0; row < 4; ++row) {
#pragma unroll
      for (int m = 0; m < Mode::kHalves; ++m) {
        const unsigned char* from = stage + at[row % 2] + row / 2 * further + Mode::kHalfStep * m * Mode::kBytes;
        if constexpr (Mode::kParity == Stride1Parity::mixed) {
#pragma unroll
          for (int i = 0; i < Mode::kWindow; ++i)
            to.v[m * Mode::kWindow + i][row] = *reinterpret_cast<const float*>(from + 4 * i);
        } else {
          load_pairs(from - Mode::kBefore * Mode::kBytes, m, row, to);
        }
      }
    }
  }

  /// Loads the pairs of a window, from the pair with its first element on.
  static __device__ __forceinline__ void load_pairs(const unsigned char* from, int m, int row, Stride1Raw<Mode>& to) {
#pragma unroll
    for (int i = 0; i < Mode::kPairsRead; ++i) {
      if constexpr (Stride1Raw<Mode>::kPaired) {
        to.v[m * Mode::kPairsRead + i][row] = *reinterpret_cast<const std::uint32_t*>(from + 4 * i);
      } else {
        const float2 both = *reinterpret_cast<const float2*>(from + 8 * i);
        const int first = 2 * i - Mode::kBefore, base = m * Mode::kWindow + first;
        if (first >= 0) to.v[base][row] = both.x;
        if (first + 1 < Mode::kWindow) to.v[base + 1][row] = both.y;
      }
    }
  }

  /// The first or the second half of the conversion: high halves, then low ones; with one part the elements of the first two
  /// positions, then the others.
  template <int kTurn>
  __device__ __forceinline__ void convert(const Stride1Raw<Mode>& raw, Stride1Words<Mode>& to) {
    if constexpr (Operand::kParts == 2) {
      // As little work as possible precedes a step's first products; the rest follows them.
      if constexpr (kTurn == 0) {
        convert_high<0, Mode::kElements>(raw, to);
      } else {
        see<0, Mode::kElements>(to);
        check(raw);
        convert_low(raw, to);
      }
    } else {
      constexpr int kFirst = kTurn == 0 ? 0 : Mode::kWindow, kLast = kTurn == 0 ? Mode::kWindow : Mode::kElements;
      if constexpr (Operand::kScaled) {
        convert_high<kFirst, kLast>(raw, to);
        see<kFirst, kLast>(to);
        if constexpr (kTurn == 1) check(raw);
      } else {
        pair_up<kFirst, kLast>(raw, to);
      }
    }
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void convert_high(const Stride1Raw<Mode>& raw, Stride1Words<Mode>& to) const {
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const __half2 high = __floats2half2_rn(raw.v[i][2 * k] * scale, raw.v[i][2 * k + 1] * scale);
        to.v[i][0][k] = *reinterpret_cast<const std::uint32_t*>(&high);
      }
    }
  }

  /// The largest and the least of the high halves.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void see(const Stride1Words<Mode>& words) {
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const __half2 high = __habs2(*reinterpret_cast<const __half2*>(&words.v[i][0][k]));
        seen.most = __hmax2_nan(seen.most, high);
        seen.fewest = __hmin2(seen.fewest, high);
      }
    }
  }

  __device__ __forceinline__ void convert_low(const Stride1Raw<Mode>& raw, Stride1Words<Mode>& to) const {
#pragma unroll
    for (int i = 0; i < Mode::kElements; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        to.v[i][1][k] =
            low_parts(raw.v[i][2 * k] * scale, raw.v[i][2 * k + 1] * scale, *reinterpret_cast<const __half2*>(&to.v[i][0][k]));
      }
    }
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void pair_up(const Stride1Raw<Mode>& raw, Stride1Words<Mode>& to) const {
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int in_window = i % Mode::kWindow + Mode::kBefore, word = i / Mode::kWindow * Mode::kPairsRead + in_window / 2;
        to.v[i][0][k] = __byte_perm(raw.v[word][2 * k], raw.v[word][2 * k + 1], in_window % 2 == 0 ? 0x5410 : 0x7632);
      }
    }
  }

  /// Counts those that were too small.
  __device__ __forceinline__ void check(const Stride1Raw<Mode>& raw) {
    const float2 fewest = __half22float2(seen.fewest);
    if (fewest.x >= kLeastNormalHalf && fewest.y >= kLeastNormalHalf) return;
    seen.fewest = __half2half2(__float2half(kLargestHalf));
#pragma unroll
    for (int i = 0; i < Mode::kElements; ++i) {
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        const std::uint32_t bits = __float_as_uint(raw.v[i][row]);
        if (bits + bits - 1 < least) ++small;
      }
    }
  }

  /// The count for the tile's elements that this warp has read.
  __device__ __forceinline__ SuspectCount suspect_count() const {
    return __reduce_add_sync(0xffffffffU, suspect_count_of(small, seen.most));
  }
};

}  // namespace polyphase::cuda::tensor_core
