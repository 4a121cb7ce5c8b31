#pragma once
// The tensor-core weight gradient by rows: tensor copies bring what a step needs of each row, as it is, to shared memory.
//
// The rows (gemm_m) are not shifted, so their positions are gemm_k as they lie: each consumer thread takes its part of the
// registers' fragment from the raw rows and converts it. Only the columns, which are shifted, become an operand tile, by three
// warps; a fourth issues the copies. Raw rows of either side and tiles have rings of their own.

#include <cstdint>

#include "cuda/conv/sm90/tensor_core_wgrad.cuh"
#include "cuda/conv/sm90/tensor_core_wgrad_maps.hpp"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kWgradRowThreads = 128 + 256;

/// What a block's threads look up; static: kRowsStaticBytes of tensor_core_wgrad_steps.cpp.
struct WgradRowBlock {
  WgradPlace place;
  std::uint64_t barriers[3][2 * kWgradStages];
};
static_assert(sizeof(WgradRowBlock) <= 1024);

/// One ring of a block: where it lies and its barriers, a full and an empty one a stage.
struct WgradBuffer {
  unsigned char* stages;
  std::uint32_t barriers;
  int count, bytes;
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ unsigned char* at(int stage) const { return stages + stage * bytes; }
};

struct WgradBuffers {
  WgradBuffer rows, columns, tiles;
};

/// Where in a row a side's window of a chunk begins, before its first shift is added.
__device__ __forceinline__ std::int64_t window_begin(const WgradSide& side, const WgradSteps& steps, int shift, int chunk) {
  return side.start + side.start_per_shift * shift + side.step * steps.chunk * std::int64_t{chunk};
}

/// Numbers of a class before the window: a copy begins at a multiple of 16 bytes. The same at every chunk.
template <class T>
__device__ __forceinline__ int numbers_before(const WgradClasses& classes, int c, std::int64_t begin) {
  return static_cast<int>(begin + classes.offset[c]) & (16 / static_cast<int>(sizeof(T)) - 1);
}

/// One thread brings a side's raw rows of a step.
template <class T>
__device__ __forceinline__ void copy_rows(const WgradSide& side, const WgradClasses& classes, const WgradBuffer& buffer,
                                          int stage, int first_row, int begin, int n) {
  const std::uint32_t barrier = buffer.full(stage);
  ptx::mbarrier_arrive_expect(barrier, static_cast<std::uint32_t>(side.raw.arriving));
  std::uint32_t to = ptx::shared_address(buffer.at(stage));
  for (int c = 0; c < side.raw.classes; ++c) {
    const int inner = begin + classes.offset[c] - numbers_before<T>(classes, c, begin);
    for (int box = 0; box < side.raw.boxes; ++box) {
      ptx::tensor_copy(to, &classes.map[c], inner + box * side.raw.span, first_row, n, barrier);
      to += static_cast<std::uint32_t>(side.raw.box_bytes);
    }
  }
}

/// All the copies of a block.
template <class T>
__device__ __forceinline__ void copy_steps(const WgradSteps& steps, const WgradMaps& maps, const WgradPlace& place,
                                           const WgradBuffers& buffers) {
  Ring rows, columns;
  auto n = static_cast<int>(place.first_chunk / steps.chunks_per_row);
  auto chunk = static_cast<int>(place.first_chunk - n * steps.chunks_per_row);
  const auto first_row = [&](const WgradSide& side, int block) {
    return (place.group * side.channels + block / side.planes * 8) / side.raw.classes;
  };
  const int row = first_row(steps.rows, place.row_block), column = first_row(steps.columns, place.column_block);
  for (auto left = static_cast<int>(place.last_chunk - place.first_chunk); left > 0; --left) {
    ptx::mbarrier_wait(buffers.columns.empty(columns.stage), columns.parity ^ 1);
    copy_rows<T>(steps.columns, maps.columns, buffers.columns, columns.stage, column,
                 static_cast<int>(window_begin(steps.columns, steps, place.shift, chunk)), n);
    ptx::mbarrier_wait(buffers.rows.empty(rows.stage), rows.parity ^ 1);
    copy_rows<T>(steps.rows, maps.rows, buffers.rows, rows.stage, row,
                 static_cast<int>(window_begin(steps.rows, steps, place.shift, chunk)), n);
    columns.advance(steps.columns_stages);
    rows.advance(steps.rows_stages);
    if (++chunk == static_cast<int>(steps.chunks_per_row)) chunk = 0, ++n;
  }
}

/// What a converter does for one of its items in every step: 8 channels of a plane at one position.
struct __align__(16) WgradRowItem {
  std::uint32_t from;   // byte of the raw rows: of the first channel
  std::uint32_t to;     // byte of the tile
  std::int32_t within;  // number of the window
  std::int32_t unused;
};
inline constexpr std::uint32_t kNoItem = 0xffffffff;  // in place of `to`

__device__ __forceinline__ WgradRowItem make_row_item(const WgradSide& side, int first_block, int index, int bytes) {
  const auto item = static_cast<std::uint32_t>(index);
  const std::uint32_t group = side.by_plane_window.divide(item);
  const std::uint32_t rest = item - group * side.by_plane_window.divisor;
  const std::uint32_t u = side.by_planes.divide(rest);
  const auto own = static_cast<int>(group * side.by_planes.divisor + rest - u * side.by_planes.divisor);
  const int block = first_block + own;
  if (own >= side.tile || block >= side.blocks) return {0, kNoItem, 0, 0};
  const int channel = (block / side.planes - first_block / side.planes) * 8, plane = block % side.planes;
  const auto within = static_cast<int>(side.step * u + plane * side.plane_step);
  const int box = within / side.raw.span;
  const int in_box = channel / side.raw.classes * side.raw.width + within - box * side.raw.span;
  const int from = box * side.raw.box_bytes + in_box * bytes;
  return {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(own * side.pitch + static_cast<int>(u)) * 16, within, 0};
}

template <class T>
__device__ __forceinline__ std::uint32_t raw_word(const unsigned char* at) {
  if constexpr (sizeof(T) == 4) return *reinterpret_cast<const std::uint32_t*>(at);
  return *reinterpret_cast<const std::uint16_t*>(at);
}

inline constexpr std::uint32_t kLowerHalves = 0x5410;  // of two words, for WgradFill::convert

/// The words of a converter's item. `hidden`: the numbers before it are not the row's.
template <class T>
__device__ __forceinline__ void load_row_item(const WgradRowItem& item, const unsigned char* raw, const int (&channel)[8],
                                              int hidden, std::uint32_t (&words)[8]) {
#pragma unroll
  for (int c = 0; c < 8; ++c) words[c] = raw_word<T>(raw + item.from + channel[c]);
  if (item.within < hidden) {
#pragma unroll
    for (int c = 0; c < 8; ++c) words[c] = 0;
  }
}

/// All the steps of a converter. `items`: this thread's, kWgradConverters apart.
template <class Operand, int kItems>
__device__ __forceinline__ void convert_steps(const WgradSteps& steps, const WgradClasses& classes, const WgradPlace& place,
                                              const WgradBuffers& buffers, const WgradRowItem* items, int slots, float scale,
                                              WgradRange& range) {
  using T = typename Operand::Source;
  const WgradSide& side = steps.columns;
  int channel[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const int before = numbers_before<T>(classes, c % side.raw.classes, window_begin(side, steps, place.shift, 0));
    channel[c] = c % side.raw.classes * side.raw.class_bytes +
                 (c / side.raw.classes * side.raw.width + before) * static_cast<int>(sizeof(T));
  }
  const int part_bytes = steps.stage_bytes / Operand::kParts;
  Ring raw, tile;
  auto chunk = static_cast<int>(place.first_chunk % steps.chunks_per_row);
  for (auto left = static_cast<int>(place.last_chunk - place.first_chunk); left > 0; --left) {
    const auto hidden = static_cast<int>(-window_begin(side, steps, place.shift, chunk));
    ptx::mbarrier_wait(buffers.columns.full(raw.stage), raw.parity);
    ptx::mbarrier_wait(buffers.tiles.empty(tile.stage), tile.parity ^ 1);
    const unsigned char* from = buffers.columns.at(raw.stage);
    unsigned char* to = buffers.tiles.at(tile.stage);
    // kItems at a time: the loads of one pass while another is converted.
#pragma unroll 1
    for (int slot = 0; slot < slots; slot += kItems) {
      std::uint32_t words[kItems][8], places[kItems];
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const WgradRowItem item = items[(slot + i) * kWgradConverters];
        load_row_item<T>(item, from, channel, hidden, words[i]);
        places[i] = item.to;
      }
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        if (places[i] != kNoItem)
          WgradFill<Operand>::convert_item(words[i], kLowerHalves, scale, to + places[i], part_bytes, range);
    }
    ptx::mbarrier_arrive(buffers.tiles.full(tile.stage));
    ptx::mbarrier_arrive(buffers.columns.empty(raw.stage));
    raw.advance(steps.columns_stages);
    tile.advance(steps.stages);
    if (++chunk == static_cast<int>(steps.chunks_per_row)) chunk = 0;
  }
}

/// Rows of a block of 8 in the order of the lanes: what lanes read together then lies in different banks.
__device__ __forceinline__ int row_of_lane(int i) { return (i & 1) << 2 | (i & 2) | i >> 2; }

/// Where a row of gemm_m is among a step's raw rows: of box 0, without the swizzle, which XORs `phase`.
struct WgradRow {
  std::uint32_t byte, phase;
  int first;   // number of the window at position 0
  int before;  // numbers before the window
};

/// Row `row` of gemm_m, in the block's tile; one that does not exist is another one. `begin`: of the window.
template <class T>
__device__ __forceinline__ WgradRow raw_row(const WgradSide& side, const WgradClasses& classes, std::int64_t begin,
                                            int first_block, int own_block, int row) {
  const int block = first_block + min(own_block, min(side.tile, side.blocks - first_block) - 1);
  const int first = first_block / side.planes * 8;
  const int channel = min(block / side.planes * 8 + row, side.channels - 1) - first;
  const int in_class = channel / side.raw.classes;
  return {static_cast<std::uint32_t>(channel % side.raw.classes * side.raw.class_bytes + in_class * 128),
          static_cast<std::uint32_t>(in_class % 8 * 16), static_cast<int>(block % side.planes * side.plane_step),
          numbers_before<T>(classes, channel % side.raw.classes, begin)};
}

/// The numbers of a consumer thread's fragments: of two rows, or, for load_blocks, of one. A fragment is 16 positions of the
/// step: kCount of them from kFirst.
template <class Operand>
struct WgradRows {
  using T = typename Operand::Source;
  const unsigned char* raw;  // of a stage
  WgradRow row[2];           // lane / 4 of a block of 8, and of the next
  WgradRow named;            // that this lane names for load_blocks
  int step, box_bytes;
  bool is_dense;   // neighbouring numbers, in the same place of 16 bytes as the window
  bool has_pairs;  // neighbouring numbers, of which two are together where the first is even
  int position;    // the first of this warpgroup

  /// Neighbouring numbers, nothing hidden.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void load_dense(float scale, std::uint32_t (&high)[kCount][4], std::uint32_t (&low)[kCount][4],
                                             WgradRange& range) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (sizeof(T) == 2) {
      const std::uint32_t from = ptx::shared_address(raw) + named.byte + static_cast<std::uint32_t>(position / 64 * box_bytes);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const auto in_row = static_cast<std::uint32_t>((kFirst + k) * 32 + lane / 16 * 16);
        ptx::load_blocks(from + (in_row ^ named.phase), high[k]);
      }
    } else {
      const unsigned char* from[2];
      const auto own = static_cast<std::uint32_t>(lane % 4 * 8);
#pragma unroll
      for (int i = 0; i < 2; ++i) from[i] = raw + row[i].byte + position / 32 * box_bytes;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        std::uint32_t words[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int half = kFirst + k;
          const std::uint32_t in_row = (static_cast<std::uint32_t>(half % 2 * 64 + i / 2 * 32) + own) ^ row[i % 2].phase;
          const uint2 pair = *reinterpret_cast<const uint2*>(from[i % 2] + half / 2 * box_bytes + in_row);
          words[2 * i] = pair.x;
          words[2 * i + 1] = pair.y;
        }
        WgradFill<Operand>::convert(words, scale, 0, high[k], low[k], range);
      }
    }
  }

  /// Where a number of a row is.
  __device__ __forceinline__ const unsigned char* find(const WgradRow& at, int number) const {
    const int byte = (number + at.before) * static_cast<int>(sizeof(T));
    return raw + byte / 128 * box_bytes + at.byte + ((byte & 127) ^ at.phase);
  }

  /// Neighbouring numbers, two of which are together where the first is even; those before `hidden` are zero.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void load_pairs(float scale, int hidden, std::uint32_t (&high)[kCount][4],
                                             std::uint32_t (&low)[kCount][4], WgradRange& range) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      std::uint32_t words[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int number = position + (kFirst + k) * 16 + i / 2 * 8 + 2 * (lane % 4);
        const unsigned char* at = find(row[i % 2], number);
        if constexpr (sizeof(T) == 2) {
          const std::uint32_t kept = number >= hidden ? 0xffffffffU : number + 1 == hidden ? 0xffff0000U : 0U;
          high[k][i] = *reinterpret_cast<const std::uint32_t*>(at) & kept;
        } else {
          const uint2 pair = *reinterpret_cast<const uint2*>(at);
          words[2 * i] = number >= hidden ? pair.x : 0;
          words[2 * i + 1] = number + 1 >= hidden ? pair.y : 0;
        }
      }
      if constexpr (sizeof(T) == 4) WgradFill<Operand>::convert(words, scale, 0, high[k], low[k], range);
    }
  }

  /// Any distance between the numbers; those of the window before `hidden` are zero.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void load_sparse(float scale, int hidden, std::uint32_t (&high)[kCount][4],
                                              std::uint32_t (&low)[kCount][4], WgradRange& range) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      std::uint32_t words[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const WgradRow& at = row[i / 2 % 2];
        const int number = (position + (kFirst + k) * 16 + i / 4 * 8 + 2 * (lane % 4) + i % 2) * step + at.first;
        words[i] = raw_word<T>(find(at, number));
        if (number < hidden) words[i] = 0;
      }
      WgradFill<Operand>::convert(words, scale, kLowerHalves, high[k], low[k], range);
    }
  }

  /// `kDense`: the numbers are known to be neighbours, and none hidden.
  template <bool kDense, int kFirst, int kCount>
  __device__ __forceinline__ void load(float scale, int hidden, std::uint32_t (&high)[kCount][4],
                                       std::uint32_t (&low)[kCount][4], WgradRange& range) const {
    if (kDense || (is_dense && hidden <= 0))
      load_dense<kFirst>(scale, high, low, range);
    else if (has_pairs)
      load_pairs<kFirst>(scale, hidden, high, low, range);
    else
      load_sparse<kFirst>(scale, hidden, high, low, range);
  }
};

/// total += rows * columns for every shift, over one step. `rows_read()` once the fragments are in registers, `release()` once
/// the tensor cores are done with the step.
template <class Operand, int kN, int kShifts, class RowsRead, class Release>
__device__ __forceinline__ void multiply_rows_split(const WgradOperands& at, const std::uint32_t (&high)[kChunk / 16][4],
                                                    const std::uint32_t (&low)[kChunk / 16][4], RowsRead rows_read,
                                                    Release release, float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
  constexpr int kSteps = kChunk / 16;
  // Both sums at once where there are registers for it.
  constexpr int kSums = kN <= 64 ? 2 : 1;

  float sums[kSums][kN / 2];
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) ptx::settle(sums[i]);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      Mma::multiply(sums[0], low[k], at.column(0, shift, k), k != 0);
      Mma::multiply(sums[0], high[k], at.column(1, shift, k), true);
    }
    if constexpr (kSums == 1) {
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::settle(sums[0]);
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) sums[0][i] *= 1.0F / kLowScale;
      ptx::settle(sums[0]);
      ptx::wgmma_fence();
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k) Mma::multiply(sums[kSums - 1], high[k], at.column(0, shift, k), kSums == 1 || k != 0);
    ptx::wgmma_commit();
    if (shift == 0) rows_read();
    ptx::wgmma_wait<0>();
    if (shift == kShifts - 1) release();
#pragma unroll
    for (int i = 0; i < kSums; ++i) ptx::settle(sums[i]);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i)
      total[shift][i] += kSums == 2 ? fmaf(sums[0][i], 1.0F / kLowScale, sums[kSums - 1][i]) : sums[0][i];
  }
}

/// The same without splitting, of some of a step's positions from `kFirst` on: the sums stay in the tensor cores, which begin
/// them anew where not `go_on`. Waits for them; then `done()`.
template <class Operand, int kN, int kShifts, int kFirst, int kCount, class Done>
__device__ __forceinline__ void multiply_rows_once(const WgradOperands& at, const std::uint32_t (&rows)[kCount][4], bool go_on,
                                                   Done done, float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) ptx::settle(total[shift]);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kCount; ++k)
#pragma unroll
    for (int shift = 0; shift < kShifts; ++shift)
      Mma::multiply(total[shift], rows[k], at.column(0, shift, kFirst + k), k != 0 || go_on);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  done();
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) ptx::settle(total[shift]);
}

/// The rest of a step from its position kFirst on, kCount fragments at a time, of which the first are loaded.
template <class Operand, int kN, int kShifts, bool kDense, int kCount, int kFirst = 0, class Done>
__device__ __forceinline__ void multiply_rows_on(const WgradRows<Operand>& rows, const WgradOperands& at, float scale,
                                                 int hidden, bool go_on, std::uint32_t (&high)[kCount][4],
                                                 std::uint32_t (&low)[kCount][4], Done done, WgradRange& range,
                                                 float (&total)[kShifts][kN / 2]) {
  if constexpr (kFirst + kCount == kChunk / 16) {
    multiply_rows_once<Operand, kN, kShifts, kFirst>(at, high, go_on, done, total);
  } else {
    multiply_rows_once<Operand, kN, kShifts, kFirst>(
        at, high, go_on, [] {}, total);
    rows.template load<kDense, kFirst + kCount>(scale, hidden, high, low, range);
    multiply_rows_on<Operand, kN, kShifts, kDense, kCount, kFirst + kCount>(rows, at, scale, hidden, true, high, low, done,
                                                                            range, total);
  }
}

}  // namespace polyphase::cuda::tensor_core
