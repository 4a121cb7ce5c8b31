#pragma once
// How rows of the source come into shared memory as they are, and from there into the registers of wgmma
// (kernel.cuh).

#include <cstdint>
#include <type_traits>

#include "cuda/conv/tensor_core/both_in_shared/stationary/layout.cuh"
#include "cuda/conv/tensor_core/both_in_shared/stationary/producer.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/maps.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// The source of a tile: row 0 at the tile's first element, and which elements from there lie inside a row.
template <class T>
struct RowTile {
  const T* base;
  std::int64_t row, element;  // what base is in the tensor
  int first, last;
  __device__ __forceinline__ RowTile(const TapGemm& form, const TilePlace& place, const T* source)
      : row((place.n * form.G + place.g) * form.rows), element(place.position + form.source_origin) {
    base = source + row * form.source_length + element;
    first = static_cast<int>(max(-element, static_cast<std::int64_t>(-0x7fffffff)));
    last = static_cast<int>(min(form.source_length - element, static_cast<std::int64_t>(0x7fffffff)));
  }
};

/// Runs that are drawn: a counter of each tile of weights. Then of each tile and warp the warp's doubtful tile before it, since
/// nothing that is stored may depend on who drew what.
struct RowOrder {
  std::uint32_t* memory;
  static constexpr int kWarps = 4;
  __device__ __forceinline__ std::uint32_t* before(const RowSteps& steps, const Walk& walk, std::uint32_t number,
                                                   int warp) const {
    const auto tiles = static_cast<std::uint32_t>(steps.weight_tiles);
    return memory + tiles + (static_cast<std::int64_t>(number) * tiles + walk.tile) * kWarps + warp;
  }
  /// Words of `memory`.
  [[nodiscard]] static std::int64_t words(const RowSteps& steps) {
    return steps.weight_tiles + steps.blocks * steps.run * kWarps;
  }
};

/// The tiles of a consumer: every other one of a block's runs, of RowSteps::run tiles with kRuns, else of two. With kTold a
/// thread that copies tells the block each run but the first, when all of the one before is on its way; else they are dealt
/// out.
template <bool kRuns, bool kTold>
struct RowWalk : Walk {
  int pair, at;            // tile of the run
  std::uint32_t told = 0;  // runs
  __device__ RowWalk(const StoredSteps& steps, int pair_) : Walk(steps, pair_), pair(pair_), at(pair_) {
    if (!kRuns) return;
    above = steps.by_weight_tiles.divide(blockIdx.x);
    step = steps.by_weight_tiles.divide(gridDim.x);
  }
  template <class RowLayout>
  __device__ __forceinline__ void advance(const RowSteps& steps, const RowLayout& layout) {
    if (kRuns && (at += kPairs) < length(steps)) return;
    at = pair;
    if (!kTold) {
      above += step;
      return;
    }
    const std::uint32_t slot = layout.told(told);
    ptx::mbarrier_wait(slot, told / kRowToldRuns & 1);
    // Through a shuffle the compiler knows it to be the same in a warp.
    above = __shfl_sync(0xffffffffU, ptx::load_shared(slot + 8), 0) + static_cast<std::uint32_t>(kRuns ? 0 : pair);
    ++told;
  }
  __device__ __forceinline__ bool ends_run(const RowSteps& steps) const {
    return kTold && (!kRuns || at + kPairs >= length(steps));
  }
  /// The block's next run, as the first consumer's walk has it. The second one is dealt out: the counter may not be zero yet.
  __device__ __forceinline__ std::uint32_t draw(const RowSteps& steps, const RowOrder& order) const {
    if (told == 0 || !steps.is_drawn) return above + step;
    wait_for_grid_before();
    return 2 * step + atomicAdd(order.memory + tile, kRuns ? 1U : static_cast<std::uint32_t>(kPairs));
  }
  template <class RowLayout>
  __device__ __forceinline__ void tell(const RowLayout& layout, std::uint32_t next) const {
    const std::uint32_t slot = layout.told(told);
    ptx::store_shared(slot + 8, next);
    ptx::mbarrier_arrive(slot);
  }
  /// Tiles of the run: a row's last one may have fewer.
  __device__ __forceinline__ int length(const RowSteps& steps) const {
    const std::uint32_t n = steps.by_position_tiles.divide(above);
    return above - n * steps.by_position_tiles.divisor + 1 == steps.by_position_tiles.divisor ? steps.last_run : steps.run;
  }
  /// The tile's number, and the walk at it.
  __device__ __forceinline__ std::uint32_t number(const RowSteps& steps) const {
    return kRuns ? above * static_cast<std::uint32_t>(steps.run) + static_cast<std::uint32_t>(at) : above;
  }
  __device__ __forceinline__ void go_to(const RowSteps& steps, std::uint32_t number) {
    const auto run = static_cast<std::uint32_t>(kRuns ? steps.run : 1);
    above = number / run;
    if (kRuns) at = static_cast<int>(number - above * run);
  }
  /// That of the consumer `further` behind this one.
  __device__ __forceinline__ TilePlace place(const RowSteps& steps, int further = 0) const {
    Walk own = *this;
    if (!kRuns) own.above += static_cast<std::uint32_t>(further);
    TilePlace place = own.Walk::place(steps);
    if (kRuns) place.position += (at + further) * kCarryPositions;
    return place;
  }
};

/// Where row `row` of a step lies in its stage, in rows: those of a map side by side.
__device__ __forceinline__ int slot_of(const RowSteps& steps, int row) {
  return steps.classes == 2 ? row % 2 * (kRowsOfStep / 2) + row / 2 : row;
}

/// Brings a step that lies inside its rows, from row `row` of all and element `element` on: a box of each class.
template <class T>
__device__ __forceinline__ void copy_boxes(const RowSteps& steps, const RowMaps& maps, std::int64_t row, std::int64_t element,
                                           std::uint32_t to, std::uint32_t barrier) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  ptx::mbarrier_arrive_expect(barrier, static_cast<std::uint32_t>(steps.stage_bytes));
  for (int i = 0; i < steps.classes; ++i, ++row) {
    const int own = steps.classes == 2 ? static_cast<int>(row % 2) : 0;
    ptx::tensor_copy(to + static_cast<std::uint32_t>(i * (steps.stage_bytes / 2)), &maps.map[own],
                     (static_cast<int>(element) + maps.offset[own]) & -kVector,
                     static_cast<int>(steps.classes == 2 ? row / 2 : row), 0, barrier);
  }
}

/// All steps of a consumer's tiles, or of both's in turns, each row from the 16-byte boundary before it on; what lies outside
/// the rows is zero. kThreads threads, in whose place one issues a few big copies where nothing is outside. Rows begin and end
/// at whole words of 4 bytes.
template <class T, int kThreads, bool kBoth, bool kRuns, class RowLayout>
__device__ __forceinline__ void copy_rows(const TapGemm& form, const RowSteps& steps, const RowMaps& maps,
                                          const RowLayout& layout, const RowOrder& order, const T* __restrict__ source,
                                          int pair, int thread) {
  constexpr int kBytes = static_cast<int>(sizeof(T)), kOfRow = kThreads / kRowsOfStep;
  const int row = thread / kOfRow, column = thread % kOfRow;
  const std::int64_t further = kRowsOfStep * form.source_length * kBytes;
  const auto slot = static_cast<std::uint32_t>(slot_of(steps, row) * steps.pitch);
  Ring ring;
  RowWalk<kRuns, kBytes == 4> walk(steps, kBoth ? 0 : pair);
  std::uint32_t next = 0;  // run, in the thread that draws
  for (bool is_second = false; walk.more();) {
    const bool draws = pair == 0 && thread == 0 && walk.ends_run(steps);
    if (draws && !is_second) next = walk.draw(steps, order);
    const RowTile<T> tile(form, walk.place(steps, is_second ? 1 : 0), source);
    const T* begin = tile.base + row * form.source_length;
    const auto offset = static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) % 16), end = offset + steps.span * kBytes;
    const auto* from = reinterpret_cast<const unsigned char*>(begin) - offset;
    const bool inside = tile.first <= 0 && steps.span <= tile.last;
    // Maps have zeros outside of their rows; before a row's first element lies the row before, where rows begin within a map.
    const bool by_maps = steps.classes != 0 && (tile.first <= 0 || maps.offset[0] + maps.offset[kRowClassesMost - 1] == 0);
    auto rows = static_cast<int>(form.rows) - row;
    for (int step = 0; step < steps.count; ++step, rows -= kRowsOfStep, from += further) {
      const std::uint32_t stage = layout.ring + static_cast<std::uint32_t>(ring.stage * steps.stage_bytes);
      const std::uint32_t own = stage + slot, full = layout.full(ring.stage);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      if (by_maps && (step + 1) * kRowsOfStep <= form.rows) {
        if (thread == 0)
          copy_boxes<T>(steps, maps, tile.row + step * kRowsOfStep, tile.element, stage, full);
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
      ring.advance(steps.stages);
    }
    if (kBoth) is_second = !is_second && (kRuns || walk.above + 1 < walk.count);
    if (is_second) continue;
    if (draws) walk.tell(layout, next);
    walk.advance(steps, layout);
  }
}

/// How tiles are stored: carried where RowSteps::store_classes is not zero, late with a residual or through a derivative.
/// Kernels of their own: beside the code of the others, tf32 was up to a tenth slower without either.
enum class RowStores : int { tiles, carried, late };

/// How a kernel's threads read rows: slot s of a warp has positions 2s and 2s + 1 of each of its two 16, so that a tap's
/// elements are, but for one, those of the tap before. Halves share none: what the products of one read is not written while
/// they are under way. kParity: RowSteps::parity.
template <class Operand_, int kHalves_, int kTaps_, RowParity kParity_, RowStores kStores_ = RowStores::tiles>
struct RowMode {
  using Operand = Operand_;
  static constexpr int kHalves = kHalves_, kTaps = kTaps_;
  static constexpr RowParity kParity = kParity_;
  static constexpr int kBytes = static_cast<int>(sizeof(typename Operand::Source));
  static constexpr bool kInTurns = takes_turns(Operand::kParts, kBytes);
  static constexpr bool kBeginsAtBias = !Operand::kScaled;  // sums begin with a product of the biases, which are of its type
  static constexpr bool kCarries = kStores_ == RowStores::carried;
  static constexpr bool kLate = kStores_ == RowStores::late;
  static constexpr int kCopiers = kInTurns ? 128 : 64;  // threads that fill a ring
  static constexpr int kWindow = 2 + kTaps - 1;         // elements of a row for two positions
  static constexpr int kElements = kHalves * kWindow;
  static constexpr int kBefore = kParity == RowParity::odd ? 1 : 0;  // elements of a pair that lie before the first
  static constexpr int kPairsRead = (kBefore + kWindow + 1) / 2;     // that are read for a window
  /// Of a warp: its second half lies so much behind the first that the numbers of a column are in other banks.
  static constexpr int kHalfStep = kHalves == 1 ? 64 : 64 / kBytes;
  static constexpr int kWarpsBetween = kHalfStep / 16;
  static __device__ __forceinline__ int position(int warp) {
    return warp / kWarpsBetween * (2 * kHalfStep) + warp % kWarpsBetween * 16;
  }
  /// The element that position h of half m reads at a tap.
  static constexpr int element(int m, int h, int tap) { return m * kWindow + h + tap; }
};

/// A thread's elements of a step as they are: rows 2q, 2q + 1, 2q + 8, 2q + 9; of 16 bits two in a word.
template <class Mode>
struct RowRaw {
  static constexpr bool kPaired = Mode::kBytes == 2;
  std::conditional_t<kPaired, std::uint32_t, float> v[kPaired ? Mode::kHalves * Mode::kPairsRead : Mode::kElements][4];
};

/// The same converted, as wgmma takes them: pairs of rows.
template <class Mode>
struct RowWords {
  std::uint32_t v[Mode::kElements][Mode::Operand::kParts][2];
};

template <class Mode>
struct RowReader {
  using Operand = typename Mode::Operand;
  const RowSteps& steps;
  float scale;
  std::uint32_t least;     // of magnitudes that split exactly, doubled less one
  int position, lane_row;  // this thread's first ones
  int at[2] = {};          // bytes from a stage to this thread's first element, of rows 2q and 2q + 1
  Seen seen;
  Faults small;  // elements of the tile that were too small

  __device__ __forceinline__ RowReader(const RowSteps& steps_, int exponent, int warp, int lane)
      : steps(steps_),
        scale(power_of_two(exponent)),
        least(2 * SplitRange(exponent).least - 1),
        position(Mode::position(warp) + 2 * (lane / 4)),
        lane_row(lane % 4 * 2) {}

  __device__ __forceinline__ void begin_tile(const TapGemm& form, const RowTile<typename Operand::Source>& tile) {
    const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(tile.base));
    const std::uint32_t length = static_cast<std::uint32_t>(form.source_length) * Mode::kBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      at[i] = slot_of(steps, lane_row + i) * steps.pitch +
              static_cast<int>((address + static_cast<std::uint32_t>(lane_row + i) * length) & 15U) + position * Mode::kBytes;
    seen = Seen();
    small = 0;
  }

  __device__ __forceinline__ void load(const unsigned char* stage, RowRaw<Mode>& to) const {
    const int further = (steps.classes == 2 ? 4 : 8) * steps.pitch;
#pragma unroll
    for (int row = 0; row < 4; ++row) {
#pragma unroll
      for (int m = 0; m < Mode::kHalves; ++m) {
        const unsigned char* from = stage + at[row % 2] + row / 2 * further + Mode::kHalfStep * m * Mode::kBytes;
        if constexpr (Mode::kParity == RowParity::mixed) {
#pragma unroll
          for (int i = 0; i < Mode::kWindow; ++i)
            to.v[m * Mode::kWindow + i][row] = *reinterpret_cast<const float*>(from + 4 * i);
        } else {
          load_pairs(from - Mode::kBefore * Mode::kBytes, m, row, to);
        }
      }
    }
  }

  /// The pairs of a window, from the one on that has its first element.
  static __device__ __forceinline__ void load_pairs(const unsigned char* from, int m, int row, RowRaw<Mode>& to) {
#pragma unroll
    for (int i = 0; i < Mode::kPairsRead; ++i) {
      if constexpr (RowRaw<Mode>::kPaired) {
        to.v[m * Mode::kPairsRead + i][row] = *reinterpret_cast<const std::uint32_t*>(from + 4 * i);
      } else {
        const float2 both = *reinterpret_cast<const float2*>(from + 8 * i);
        const int first = 2 * i - Mode::kBefore, base = m * Mode::kWindow + first;
        if (first >= 0) to.v[base][row] = both.x;
        if (first + 1 < Mode::kWindow) to.v[base + 1][row] = both.y;
      }
    }
  }

  /// The first or the second part of the conversion: high halves, then low ones; of one part the elements of the first two
  /// positions, then the others.
  template <int kTurn>
  __device__ __forceinline__ void convert(const RowRaw<Mode>& raw, RowWords<Mode>& to) {
    if constexpr (Operand::kParts == 2) {
      // As little as can be stands before a step's first products: what these
      // do not want comes behind them.
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
  __device__ __forceinline__ void convert_high(const RowRaw<Mode>& raw, RowWords<Mode>& to) const {
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const __half2 high = __floats2half2_rn(raw.v[i][2 * k] * scale, raw.v[i][2 * k + 1] * scale);
        to.v[i][0][k] = *reinterpret_cast<const std::uint32_t*>(&high);
      }
    }
  }

  /// Of high halves the largest and the least.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void see(const RowWords<Mode>& words) {
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

  __device__ __forceinline__ void convert_low(const RowRaw<Mode>& raw, RowWords<Mode>& to) const {
#pragma unroll
    for (int i = 0; i < Mode::kElements; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float2 back = __half22float2(*reinterpret_cast<const __half2*>(&to.v[i][0][k]));
        const __half2 low = __floats2half2_rn((raw.v[i][2 * k] * scale - back.x) * kLowScale,
                                              (raw.v[i][2 * k + 1] * scale - back.y) * kLowScale);
        to.v[i][1][k] = *reinterpret_cast<const std::uint32_t*>(&low);
      }
    }
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void pair_up(const RowRaw<Mode>& raw, RowWords<Mode>& to) const {
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int in_window = i % Mode::kWindow + Mode::kBefore, word = i / Mode::kWindow * Mode::kPairsRead + in_window / 2;
        to.v[i][0][k] = __byte_perm(raw.v[word][2 * k], raw.v[word][2 * k + 1], in_window % 2 == 0 ? 0x5410 : 0x7632);
      }
    }
  }

  /// Counts what was too small.
  __device__ __forceinline__ void check(const RowRaw<Mode>& raw) {
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

  /// Of the tile's elements that this warp has read.
  __device__ __forceinline__ Faults faults() const { return __reduce_add_sync(0xffffffffU, faults_of(small, seen.most)); }
};

}  // namespace polyphase::cuda::tensor_core
