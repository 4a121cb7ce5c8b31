#pragma once
// The weight gradient on wgmma (sm_90a): w[ci, co, k] = sum over n, i of x[n, ci, i] * y[n, co, S*i + k*D - P_l]. Tensor copies
// fill shared memory with the part of each row that a step needs.
//
// gemm_k = (n, i); which channels, planes and taps are gemm_m and gemm_n: tiling.hpp. A block sums a fixed slice of the
// positions into partial sums; sums.cuh adds the slices in order. Every shift of the columns is a start address.
//
// The rows (gemm_m) are not shifted, so their positions are gemm_k in memory order: each consumer thread reads its part of the
// fragment from the raw rows and converts it. Only the columns, which are shifted, become an operand tile, converted by three
// or seven warps. Another warp issues the copies, one per lane. Raw rows of either side and tiles have separate rings.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/wgrad/maps.hpp"
#include "cuda/conv/tensor_core/wgrad/place.cuh"
#include "cuda/conv/tensor_core/wgrad/split.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// The look-up data of a block's threads. Static shared memory: kRowsStaticBytes of tiling.cpp.
struct WgradRowBlock {
  WgradPlace place;
  std::uint64_t barriers[3][2 * kWgradStages];
  bool ends_early;  // all is left to the wide kernel
};
static_assert(sizeof(WgradRowBlock) <= 1024);

/// One ring of a block: its address and its barriers, a full and an empty one per stage.
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
__device__ __forceinline__ std::int64_t window_begin(const WgradSide& side, const WgradTiling& tiling, int shift, int chunk) {
  return side.start + side.start_per_shift * shift + side.step * tiling.chunk * std::int64_t{chunk};
}

/// Numbers of a class before the window: a copy begins at a multiple of 16 bytes. The same for every chunk.
template <class T>
__device__ __forceinline__ int numbers_before(const WgradClasses& classes, int c, std::int64_t begin) {
  return static_cast<int>(begin + classes.offset[c]) & (16 / static_cast<int>(sizeof(T)) - 1);
}

/// One of the copies of every step: those of the columns' classes and boxes, then those of the rows.
struct __align__(16) WgradCopy {
  std::int32_t inner;  // the coordinate, relative to the window's begin
  std::uint32_t to;    // byte in the raw rows
  const CUtensorMap* map;
};

__device__ __forceinline__ int copies_of(const WgradSide& side) { return side.raw.classes * side.raw.boxes; }

/// Lists the copies; called by all threads of the block.
template <class T>
__device__ __forceinline__ void list_copies(const WgradTiling& tiling, const WgradMaps& maps, const WgradPlace& place,
                                            WgradCopy* list) {
  const int columns = copies_of(tiling.columns), all = columns + copies_of(tiling.rows);
  for (int i = static_cast<int>(threadIdx.x); i < all; i += static_cast<int>(blockDim.x)) {
    const WgradSide& side = i < columns ? tiling.columns : tiling.rows;
    const WgradClasses& classes = i < columns ? maps.columns : maps.rows;
    const int own = i < columns ? i : i - columns, c = own / side.raw.boxes, box = own % side.raw.boxes;
    const int before = numbers_before<T>(classes, c, window_begin(side, tiling, place.shift, 0));
    list[i] = {classes.offset[c] - before + box * side.raw.span,
               static_cast<std::uint32_t>(c * side.raw.class_bytes + box * side.raw.box_bytes), &classes.map[c]};
  }
}

/// Issues all copies of a block, by a warp, one per lane: a single thread would take longer than the copies. ends_early() is
/// asked when the rings are full for the first time. If it is true, no more are issued.
template <bool kMayEnd, class EndsEarly>
__device__ __forceinline__ void copy_steps(const WgradTiling& tiling, const WgradPlace& place, const WgradBuffers& buffers,
                                           const WgradCopy* list, EndsEarly ends_early) {
  const auto lane = static_cast<int>(threadIdx.x);
  const int columns = copies_of(tiling.columns), all = columns + copies_of(tiling.rows);
  Ring row_ring, column_ring;
  auto n = static_cast<int>(place.first_chunk / tiling.chunks_per_row);
  auto chunk = static_cast<int>(place.first_chunk - n * tiling.chunks_per_row);
  const auto first_row = [&](const WgradSide& side, int block) {
    return (place.group * side.channels + block / side.planes * 8) / side.raw.classes;
  };
  const int row = first_row(tiling.rows, place.row_block), column = first_row(tiling.columns, place.column_block);
  for (auto left = static_cast<int>(place.last_chunk - place.first_chunk); left > 0; --left) {
    const std::uint32_t columns_full = buffers.columns.full(column_ring.stage), rows_full = buffers.rows.full(row_ring.stage);
    const std::uint32_t to_columns = ptx::shared_address(buffers.columns.at(column_ring.stage));
    const std::uint32_t to_rows = ptx::shared_address(buffers.rows.at(row_ring.stage));
    const auto columns_begin = static_cast<int>(window_begin(tiling.columns, tiling, place.shift, chunk));
    const auto rows_begin = static_cast<int>(window_begin(tiling.rows, tiling, place.shift, chunk));
    ptx::mbarrier_wait(buffers.columns.empty(column_ring.stage), column_ring.parity ^ 1);
    ptx::mbarrier_wait(buffers.rows.empty(row_ring.stage), row_ring.parity ^ 1);
    if (lane == 0) {
      ptx::mbarrier_arrive_expect(columns_full, static_cast<std::uint32_t>(tiling.columns.raw.arriving));
      ptx::mbarrier_arrive_expect(rows_full, static_cast<std::uint32_t>(tiling.rows.raw.arriving));
    }
    __syncwarp();
    for (int i = lane; i < all; i += 32) {
      const WgradCopy copy = list[i];
      const bool is_column = i < columns;
      ptx::tensor_copy((is_column ? to_columns : to_rows) + copy.to, copy.map,
                       (is_column ? columns_begin : rows_begin) + copy.inner, is_column ? column : row, n,
                       is_column ? columns_full : rows_full);
    }
    column_ring.advance(tiling.columns_stages);
    row_ring.advance(tiling.rows_stages);
    if (++chunk == static_cast<int>(tiling.chunks_per_row)) chunk = 0, ++n;
    if constexpr (kMayEnd) {
      if (left == place.when_begun && ends_early()) return;
    }
  }
}

/// What a converter does for one of its items in every step: 8 channels of a plane at one position, or at two in pairs.
struct __align__(16) WgradRowItem {
  std::uint32_t from;   // byte in the raw rows, of the first channel
  std::uint32_t to;     // byte in the tile
  std::int32_t within;  // index in the window
  std::int32_t unused;
};
inline constexpr std::uint32_t kNoItem = 0xffffffff;  // marks an empty item in `to`

__device__ __forceinline__ WgradRowItem make_row_item(const WgradSide& side, int first_block, int index, int bytes) {
  const auto item = static_cast<std::uint32_t>(index);
  const std::uint32_t group = side.by_plane_window.divide(item);
  const std::uint32_t rest = item - group * side.by_plane_window.divisor;
  const std::uint32_t position = side.by_planes.divide(rest), u = side.in_pairs ? 2 * position : position;
  const auto own = static_cast<int>(group * side.by_planes.divisor + rest - position * side.by_planes.divisor);
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

/// The numbers of the window before `hidden` are not the row's.
template <int kItems>
__device__ __forceinline__ void hide_items(const WgradRowItem (&items)[kItems], int hidden, std::uint32_t (&words)[kItems][8]) {
  int zero = 0;
  ptx::opaque(zero);  // else all of this is done even if nothing is hidden
#pragma unroll
  for (int i = 0; i < kItems; ++i)
#pragma unroll
    for (int c = 0; c < 8; ++c)
      if (items[i].within < hidden) words[i][c] = static_cast<std::uint32_t>(zero);
}

/// Writes the parts of 8 channels at one position, from part to part `part_bytes` (may be negative).
template <int kParts>
__device__ __forceinline__ void write_parts(unsigned char* to, int part_bytes, const std::uint32_t (&parts)[kParts][4]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part)
    *reinterpret_cast<uint4*>(to + part * part_bytes) =
        make_uint4(parts[part][0], parts[part][1], parts[part][2], parts[part][3]);
}

/// An item of two positions: the 8 channels at the first are written, then those at the second.
template <class Operand>
__device__ __forceinline__ void convert_pair(const WgradRowItem* items, const unsigned char* from, unsigned char* to,
                                             int part_bytes, const int (&channel)[8], int hidden, float scale,
                                             WgradRange& range) {
  const auto load = [&](const WgradRowItem& item, std::uint32_t(&words)[2][8]) {
    auto first = static_cast<int>(item.from);
    ptx::opaque(first);  // added to `from` once, not for every channel
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const uint2 pair = *reinterpret_cast<const uint2*>(from + first + channel[c]);
      words[0][c] = pair.x;
      words[1][c] = pair.y;
    }
    if (hidden > 0) {
      const WgradRowItem both[2] = {item, {item.from, item.to, item.within + 1, 0}};
      hide_items(both, hidden, words);
    }
  };
  const WgradRowItem item = *items;
  std::uint32_t words[2][8];
  load(item, words);
  __half2 least = __float2half2_rn(1.0F);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::uint32_t parts[Operand::kParts][4];
    WgradSplit<Operand>::split(words[i], scale, parts, range, least);
    if (item.to != kNoItem) write_parts(to + item.to + i * 16, part_bytes, parts);
  }
  if (WgradSplit<Operand>::is_small(least)) {
    load(*items, words);  // rare: no registers for them until here
#pragma unroll
    for (int i = 0; i < 2; ++i) WgradSplit<Operand>::count_small(words[i], scale, range);
  }
}

/// All steps of a converter. `items`: this thread's, kWarps warps apart. kLowFirst: wgrad_multiplies_together().
template <class Operand, int kWarps, int kItems, bool kPairs, bool kLowFirst>
__device__ __forceinline__ void convert_steps(const WgradTiling& tiling, const WgradClasses& classes, const WgradPlace& place,
                                              const WgradBuffers& buffers, const WgradRowItem* items, int slots, float scale,
                                              WgradRange& range) {
  using T = typename Operand::Source;
  const WgradSide& side = tiling.columns;
  int channel[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    // In pairs every tile begins with shift 0: the compiler then sees that these are uniform.
    const std::int64_t begin = kPairs ? side.start : window_begin(side, tiling, place.shift, 0);
    const int before = numbers_before<T>(classes, c % side.raw.classes, begin);
    channel[c] = c % side.raw.classes * side.raw.class_bytes +
                 (c / side.raw.classes * side.raw.width + before) * static_cast<int>(sizeof(T));
  }
  const int bytes_of_part = tiling.stage_bytes / Operand::kParts;
  const int first_part = kLowFirst ? bytes_of_part : 0, part_bytes = kLowFirst ? -bytes_of_part : bytes_of_part;
  constexpr int kConverters = kWarps * 32;
  Ring raw, tile;
  auto chunk = static_cast<int>(place.first_chunk % tiling.chunks_per_row);
  for (auto left = static_cast<int>(place.last_chunk - place.first_chunk); left > 0; --left) {
    const auto hidden = static_cast<int>(-window_begin(side, tiling, place.shift, chunk));
    ptx::mbarrier_wait(buffers.columns.full(raw.stage), raw.parity);
    ptx::mbarrier_wait(buffers.tiles.empty(tile.stage), tile.parity ^ 1);
    const unsigned char* from = buffers.columns.at(raw.stage);
    unsigned char* to = buffers.tiles.at(tile.stage) + first_part;
    if constexpr (kPairs) {
#pragma unroll 1
      for (int slot = 0; slot < slots; ++slot)
        convert_pair<Operand>(items + slot * kConverters, from, to, part_bytes, channel, hidden, scale, range);
    } else {
#pragma unroll 1
      for (int slot = 0; slot < slots; slot += kItems) {
        std::uint32_t words[kItems][8];
        WgradRowItem own[kItems];
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          own[i] = items[(slot + i) * kConverters];
          auto first = static_cast<int>(own[i].from);
          ptx::opaque(first);  // added to `from` once, not for every channel
#pragma unroll
          for (int c = 0; c < 8; ++c) words[i][c] = raw_word<T>(from + first + channel[c]);
        }
        if (hidden > 0) hide_items(own, hidden, words);
        __half2 least = __float2half2_rn(1.0F);
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          std::uint32_t parts[Operand::kParts][4];
          WgradSplit<Operand>::split(words[i], scale, parts, range, least);
          if (own[i].to != kNoItem) write_parts(to + own[i].to, part_bytes, parts);
        }
        if (WgradSplit<Operand>::is_small(least)) {
#pragma unroll
          for (int i = 0; i < kItems; ++i) WgradSplit<Operand>::count_small(words[i], scale, range);
        }
      }
    }
    ptx::mbarrier_arrive(buffers.tiles.full(tile.stage));
    ptx::mbarrier_arrive(buffers.columns.empty(raw.stage));
    raw.advance(tiling.columns_stages);
    tile.advance(tiling.stages);
    if (++chunk == static_cast<int>(tiling.chunks_per_row)) chunk = 0;
  }
}

}  // namespace polyphase::cuda::tensor_core
