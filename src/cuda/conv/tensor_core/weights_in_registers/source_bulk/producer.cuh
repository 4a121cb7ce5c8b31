#pragma once
// The producers of kernel.cuh: one warpgroup copies rows unchanged into a ring, 16 per stage; another converts them to operand
// tiles [part][plane][block of 8 rows][position][8 rows], each element once.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/convert_rows.cuh"
#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/pipeline/mixed_exit.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/layout.cuh"

namespace polyphase::cuda::tensor_core {

/// The source of a tile.
template <class T>
struct BulkTile {
  const T* base;    // row 0, plane 0, position 0
  int first, last;  // offsets from there that are inside a row
  __device__ __forceinline__ BulkTile(const TapGemm& gemm, const TilePlace& place, const T* source) {
    const std::int64_t e0 = gemm.source_stride * place.position + gemm.source_origin;
    base = source + (place.n * gemm.G + place.g) * gemm.rows * gemm.source_length + e0;
    first = static_cast<int>(max(-e0, static_cast<std::int64_t>(-0x7fffffff)));
    last = static_cast<int>(min(gemm.source_length - e0, static_cast<std::int64_t>(0x7fffffff)));
  }
};

/// The tiles of a block with the dynamic scheduler: those that fill its raw stages are static and are copied before the counter
/// exists; the others are dynamic, taken one ahead.
struct BulkScheduler {
  const BulkTiles& tiles;
  const DynamicOrder& order;
  int static_tiles;          // tiles of the block that are still to be handed out
  std::uint32_t all_static;  // for all blocks
  std::uint32_t dynamic = 0;
  __device__ __forceinline__ BulkScheduler(const BulkTiling& tiling, const Walk& walk, const BulkTiles& to,
                                           const DynamicOrder& by)
      : tiles(to), order(by) {
    const int chunks = tiling.rows / kBulkRows, turns = tiling.raw_stages / (kPairs * chunks) + 1;
    static_tiles = kPairs * turns;
    all_static = static_cast<std::uint32_t>(turns) * walk.step;
  }
  /// Called by the warpgroup that copies: `walk` becomes the block's next tile, whose first rows go to raw stage `stage`, which
  /// is free.
  __device__ __forceinline__ void advance(int stage, Walk& walk, bool is_first) {
    if (is_first) {
      if (static_tiles <= 0) walk.above = all_static + dynamic;
      tiles.of_raw(stage) = walk.above;
      if (static_tiles == 1) wait_for_grid_before();
      if (static_tiles <= 1) dynamic = order.draw(walk);
    }
    --static_tiles;
    ptx::named_barrier(1 + kPairs, 128);
    walk.above = tiles.read(tiles.of_raw(stage), static_cast<int>(threadIdx.x) % 32);
  }
};

/// Copies a block's rows from the 16-byte boundary before them on: one row per lane, four rows per warp.
template <class T>
__device__ __forceinline__ void copy_bulk(const TapGemm& gemm, const BulkTiling& tiling, const BulkLayout& layout,
                                          const T* __restrict__ source, const BulkTiles& tiles, const DynamicOrder& order,
                                          MixedExit mixed, int warp, int lane) {
  const auto full_of = [&](int stage) { return layout.raw_full(stage); };
  constexpr auto kGrain = static_cast<std::uintptr_t>(15);
  const int own = warp * (kBulkRows / 4) + lane;
  const std::uintptr_t further = static_cast<std::uintptr_t>(kBulkRows * tiling.tile.length) * sizeof(T);
  const int span = span_of(tiling.tile);
  Ring ring;
  BlockWalk walk(tiling);
  BulkScheduler draw(tiling, walk, tiles, order);
  for (;; walk.advance()) {
    if (tiling.is_dynamic) {
      if (mixed.is_before(ring, tiling.raw_stages, full_of)) return;
      ptx::mbarrier_wait(layout.raw_empty(ring.stage), ring.parity ^ 1);
      draw.advance(ring.stage, walk, warp == 0 && lane == 0);
    }
    if (!walk.more()) break;
    const BulkTile<T> tile(gemm, walk.place(tiling), source);
    const int from = max(tile.first, 0), to = max(min(tile.last, span), from);
    const T* row = tile.base + own * tiling.tile.length;
    std::uintptr_t start = reinterpret_cast<std::uintptr_t>(row + from) & ~kGrain;
    const auto offset = static_cast<std::uint32_t>(start - (reinterpret_cast<std::uintptr_t>(row) & ~kGrain));
    const auto bytes = static_cast<std::uint32_t>(((reinterpret_cast<std::uintptr_t>(row + to) + kGrain) & ~kGrain) - start);
    int rows = static_cast<int>(gemm.rows);
    for (; rows > 0; rows -= kBulkRows, start += further) {
      const std::uint32_t here = from < to && lane < kBulkRows / 4 && own < rows ? bytes : 0;
      const std::uint32_t total = __reduce_add_sync(0xffffffffU, here), barrier = layout.raw_full(ring.stage);
      if (mixed.is_before(ring, tiling.raw_stages, full_of)) return;
      ptx::mbarrier_wait(layout.raw_empty(ring.stage), ring.parity ^ 1);
      if (lane == 0) ptx::mbarrier_arrive_expect(barrier, total);
      __syncwarp();
      if (here > 0)
        ptx::bulk_copy(layout.raw + static_cast<std::uint32_t>(ring.stage * tiling.raw_bytes + own * tiling.raw_pitch) + offset,
                       reinterpret_cast<const void*>(start), here, barrier);
      ring.advance(tiling.raw_stages);
    }
  }
  if (tiling.is_dynamic && lane == 0) ptx::mbarrier_arrive(layout.raw_full(ring.stage));  // signals that there is none
  mixed.end(ring, full_of);
}

/// Converts tiles: a thread has a position of every plane and every eight rows, and some positions of the halo.
template <class Operand>
struct BulkConverter {
  using T = typename Operand::Source;
  static constexpr int kVector = Operand::kVector, kBytes = static_cast<int>(sizeof(T));
  static_assert(kVector == 8);
  const BulkTiling& tiling;
  float scale;
  std::uint32_t least;   // if twice a number's bits, less one, are below this, it is too small to be split
  int offsets[kVector];  // bytes from a block's first row to each row's first element
  Seen seen{};
  std::uint32_t small = 0;  // numbers of the tile that are too small

  __device__ __forceinline__ void align(const T* base) { find_raw_rows(base, tiling, offsets); }

  /// The part of a chunk that exists.
  struct Part {
    int first, last, rows;
  };

  template <bool kInside>
  __device__ __forceinline__ void load(const unsigned char* raw, const Part& part, int block, int e, T (&v)[kVector]) const {
    const unsigned char* from = raw + block * kVector * tiling.raw_pitch + e * kBytes;
    const int rows = kInside || (e >= part.first && e < part.last) ? part.rows - block * kVector : 0;
#pragma unroll
    for (int c = 0; c < kVector; ++c) v[c] = kInside || c < rows ? *reinterpret_cast<const T*>(from + offsets[c]) : T(0.0F);
  }

  __device__ __forceinline__ void put(const T (&v)[kVector], unsigned char* to) {
    uint4 parts[Operand::kParts];
    if constexpr (Operand::kScaled)
      convert_seen<Operand>(v, scale, parts, seen);
    else
      convert<Operand>(v, scale, parts);
#pragma unroll
    for (int p = 0; p < Operand::kParts; ++p) reinterpret_cast<uint4*>(to)[p * tiling.tile.items] = parts[p];
  }

  /// Converts rows of a chunk: `raw` are their bytes; their operand of plane 0 begins at `to`.
  template <bool kInside>
  __device__ __forceinline__ void run(const Part& part, const unsigned char* raw, unsigned char* to, int thread, int turn) {
    const Tile& tile = tiling.tile;
    const int block_bytes = tile.window * 16, plane_bytes = (tile.rows / kVector) * block_bytes;
    const int beyond = (thread + turn) % kConverters;
#pragma unroll 1
    for (int plane = 0; plane < tile.planes; ++plane, to += plane_bytes) {
      const int e = tile.stride * thread + plane * tile.plane_step;
      T a[kVector], b[kVector];
      load<kInside>(raw, part, 0, e, a);
      load<kInside>(raw, part, 1, e, b);
      put(a, to + thread * 16);
      put(b, to + thread * 16 + block_bytes);
#pragma unroll 1
      for (int item = beyond; item < 2 * tiling.halo; item += kConverters) {
        const int block = item >= tiling.halo ? 1 : 0, u = kBulkPositions + item - block * tiling.halo;
        load<kInside>(raw, part, block, tile.stride * u + plane * tile.plane_step, a);
        put(a, to + u * 16 + block * block_bytes);
      }
    }
  }

  /// Some numbers were zero or too small: counts those that are too small.
  __device__ __forceinline__ void look_again(const Part& part, const unsigned char* raw, int thread, int turn) {
    const Tile& tile = tiling.tile;
    const int beyond = (thread + turn) % kConverters;
    seen.fewest = __half2half2(__float2half(kLargestHalf));
    const auto look = [&](int block, int e) {
      T v[kVector];
      load<false>(raw, part, block, e, v);
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        const std::uint32_t bits = __float_as_uint(v[c]);
        small += bits + bits - 1 < least ? 1 : 0;
      }
    };
#pragma unroll 1
    for (int plane = 0; plane < tile.planes; ++plane) {
      const int from = plane * tile.plane_step;
#pragma unroll 1
      for (int block = 0; block < 2; ++block) look(block, tile.stride * thread + from);
#pragma unroll 1
      for (int item = beyond; item < 2 * tiling.halo; item += kConverters) {
        const int block = item >= tiling.halo ? 1 : 0, u = kBulkPositions + item - block * tiling.halo;
        look(block, tile.stride * u + from);
      }
    }
  }
};

template <class Operand>
__device__ __forceinline__ void convert_bulk(const TapGemm& gemm, const BulkTiling& tiling, const BulkLayout& layout,
                                             unsigned char* sources, const unsigned char* raw,
                                             const typename Operand::Source* __restrict__ source, const OperandHeader* header,
                                             std::uint32_t* suspect_count, const BulkTiles& tiles, int thread) {
  using Converter = BulkConverter<Operand>;
  const SampleLook<Operand::kScaled> look(header);
  if (look.is_mixed()) return;
  const int exponent = look.exponent();
  Converter converter{tiling, power_of_two(exponent), 2 * SplitRange(exponent).least - 1};
  const int span = span_of(tiling.tile), chunk_bytes = 2 * tiling.tile.window * 16;
  Ring raw_ring, ring;
  int turn = 0;  // no warp always has the positions of the halo
  for (BlockWalk walk(tiling);; walk.advance()) {
    if (tiling.is_dynamic) {
      ptx::mbarrier_wait(layout.raw_full(raw_ring.stage), raw_ring.parity);
      walk.above = tiles.read(tiles.of_raw(raw_ring.stage), thread % 32);
    }
    if (!walk.more()) break;
    const BulkTile<typename Operand::Source> tile(gemm, walk.place(tiling), source);
    converter.align(tile.base);
    ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
    if (tiling.is_dynamic && thread == 0) tiles.of_stage(ring.stage) = walk.above;
    unsigned char* to = sources + ring.stage * tiling.source_bytes;
#pragma unroll 1
    for (int rows = static_cast<int>(gemm.rows); rows > 0; rows -= kBulkRows, to += chunk_bytes) {
      const typename Converter::Part part{tile.first, tile.last, rows};
      const unsigned char* from = raw + raw_ring.stage * tiling.raw_bytes;
      ptx::mbarrier_wait(layout.raw_full(raw_ring.stage), raw_ring.parity);
      if (part.first <= 0 && span <= part.last && rows >= kBulkRows)
        converter.template run<true>(part, from, to, thread, turn);
      else
        converter.template run<false>(part, from, to, thread, turn);
      if constexpr (Operand::kScaled) {
        const float2 fewest = __half22float2(converter.seen.fewest);
        if (!(fewest.x >= kLeastNormalHalf && fewest.y >= kLeastNormalHalf)) converter.look_again(part, from, thread, turn);
      }
      ptx::mbarrier_arrive(layout.raw_empty(raw_ring.stage));
      raw_ring.advance(tiling.raw_stages);
      turn += 32;
    }
    if constexpr (Operand::kScaled) {
      const SuspectCount all = __reduce_add_sync(0xffffffffU, suspect_count_of(converter.small, converter.seen.most));
      if (thread % 32 == 0) suspect_count[4 * ring.stage + thread / 32] = all;
      converter.seen = Seen();
      converter.small = 0;
    }
    ptx::fence_async_shared();
    ptx::mbarrier_arrive(layout.full(ring.stage));
    ring.advance(tiling.stages);
  }
  for (int consumer = 0; tiling.is_dynamic && consumer < kPairs; ++consumer) {  // tells each that there is none
    ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
    if (thread == 0) tiles.of_stage(ring.stage) = kNoTile;
    ptx::mbarrier_arrive(layout.full(ring.stage));
    ring.advance(tiling.stages);
  }
}

}  // namespace polyphase::cuda::tensor_core
