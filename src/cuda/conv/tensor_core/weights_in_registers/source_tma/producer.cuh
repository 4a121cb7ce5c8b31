#pragma once
// The producers of kernel.cuh: boxes of rows are copied through tensor maps into a ring, and converted from there to operand
// tiles [part][block of 8 rows][position][8 rows], each element once.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/convert_rows.cuh"
#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/maps.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// Shared memory of a block: each consumer's staging, a ring of operand tiles, a ring of unconverted rows, barriers, suspect
/// counts, suspect tiles.
struct TmaLayout {
  std::uint32_t base, sources, raw, staging, barriers;
  __device__ TmaLayout(std::uint32_t start, const TmaTiling& tiling) : base(start), staging(start) {
    sources = staging + static_cast<std::uint32_t>(kPairs * tiling.staging_bytes);
    raw = sources + static_cast<std::uint32_t>(tiling.stages * tiling.source_bytes);
    barriers = raw + static_cast<std::uint32_t>(tiling.raw_stages * tiling.raw_bytes);
  }
  /// For one of kTmaTurns consecutive tiles of a pipeline.
  __device__ __forceinline__ std::uint32_t full(int turn) const { return barriers + static_cast<std::uint32_t>(turn) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int turn) const { return full(turn) + 8; }
  __device__ __forceinline__ std::uint32_t raw_full(int stage) const { return full(stage + kPairs * kTmaTurns); }
  __device__ __forceinline__ std::uint32_t raw_empty(int stage) const { return raw_full(stage) + 8; }
  /// Four words: the suspect counts of the converting warps for the stage's tile.
  __device__ __forceinline__ std::uint32_t suspect_count(int stage) const { return raw_full(stage + kTmaRingMost); }
  /// The suspect tiles of each of the consumers' warps.
  __device__ __forceinline__ std::uint32_t suspect_tiles(int warp) const {
    return suspect_count(kTmaTurns) + static_cast<std::uint32_t>(warp) * sizeof(SuspectTiles::Entry) * SuspectTiles::kMost;
  }
  /// Words: the tile of each raw stage and of each stage of operands.
  __device__ __forceinline__ std::uint32_t tiles() const { return suspect_tiles(4 * kPairs); }
  /// The aux operand is in its staging.
  __device__ __forceinline__ std::uint32_t aux(int consumer) const {
    return tiles() + (kTmaRingMost + kTmaTurns + 2 * static_cast<std::uint32_t>(consumer)) * 4;
  }
};
static_assert((kPairs * kTmaTurns + kTmaRingMost + kTmaTurns) * 16 +
                      4 * kPairs * sizeof(SuspectTiles::Entry) * SuspectTiles::kMost +
                      (kTmaRingMost + kTmaTurns + 2 * kPairs) * 4 <=
                  kTmaFixedBytes - 1024,
              "barriers to wrong tiles");

using TmaTiles = DynamicTiles<kTmaRingMost>;

/// The position of a pipeline (a converting and a multiplying warpgroup) among the block's tiles: it has every kPairs-th. Both
/// pipelines share the operand stages in tile order. Each pipeline has its own barriers, so many that none can be a whole round
/// ahead of a waiting thread.
struct TmaTurn {
  int tile;   // index among the block's tiles
  int stage;  // of operands
  __device__ explicit TmaTurn(int pipeline) : tile(pipeline), stage(pipeline) {}
  __device__ static __forceinline__ int barrier_of(int tile) {
    return (tile / kPairs & (kTmaTurns - 1)) * kPairs + tile % kPairs;
  }
  __device__ static __forceinline__ std::uint32_t parity_of(int tile) {
    return static_cast<std::uint32_t>(tile / (kPairs * kTmaTurns) & 1);
  }
  __device__ __forceinline__ int barrier() const { return barrier_of(tile); }
  __device__ __forceinline__ std::uint32_t parity() const { return parity_of(tile); }
  /// Waits until the stage's previous tile has been multiplied.
  __device__ __forceinline__ void wait_for_stage(const TmaLayout& layout, int stages) const {
    const int before = tile - stages;
    if (before >= 0) ptx::mbarrier_wait(layout.empty(barrier_of(before)), parity_of(before));
  }
  __device__ __forceinline__ void advance(int stages) {
    tile += kPairs;
    stage += kPairs;
    if (stage >= stages) stage -= stages;
  }
};

/// Advances to the next of a pipeline's own raw stages.
__device__ __forceinline__ void advance_pipeline(Ring& ring, int own, int stages) {
  ring.stage += kPairs;
  if (ring.stage < stages) return;
  ring.stage = own;
  ring.parity ^= 1;
}

/// The first number of a tile in the rows of its sample.
__device__ __forceinline__ int tma_begin(const TapGemm& gemm, const TmaTiling& tiling, std::uint32_t tile) {
  return static_cast<int>(tiling.position_begin + gemm.source_origin) + static_cast<int>(tile) * tiling.position_step;
}

/// The chunks of a pipeline, which are copied one after another: the place of the next one. Static tiles are known to all
/// threads, dynamic ones only to the copying thread.
template <bool kPlain>
struct TmaCopier {
  Walk walk;
  TmaTiles tiles;
  DynamicOrder order;
  std::uint64_t policy;
  int row;                                      // in a sample: the group's first
  std::uint32_t static_tiles = 0, dynamic = 0;  // the number of static tiles; the next dynamic one
  int chunk = 0;
  bool has_ended = false;

  __device__ __forceinline__ TmaCopier(const TapGemm& gemm, const TmaTiling& tiling, const Walk& from, const TmaTiles& of,
                                       const DynamicOrder& by)
      : walk(from),
        tiles(of),
        order(by),
        policy(tiling.is_streamed ? ptx::staying_lines() : ptx::usual_lines()),
        row(static_cast<int>(tiling.by_column_tiles.divide(from.tile) * static_cast<std::uint32_t>(gemm.rows))) {}

  /// Run by one thread: copies the chunk to raw stage `stage`, if there is one. After the last dynamic chunk it sends the
  /// message that there is none.
  __device__ __forceinline__ void copy(const TapGemm& gemm, const TmaTiling& tiling, const TmaMaps& maps,
                                       const TmaLayout& layout, int stage) {
    const std::uint32_t barrier = layout.raw_full(stage);
    if (!walk.more()) {
      if (!kPlain || !tiling.is_dynamic || has_ended) return;
      has_ended = true;
      tiles.of_raw(stage) = kNoTile;
      ptx::mbarrier_arrive(barrier);
      return;
    }
    if (kPlain && tiling.is_dynamic) tiles.of_raw(stage) = walk.above;
    const std::uint32_t n = tiling.by_position_tiles.divide(walk.above);
    const int begin = tma_begin(gemm, tiling, walk.above - n * tiling.by_position_tiles.divisor);
    const int first = static_cast<int>(n * static_cast<std::uint32_t>(gemm.G * gemm.rows)) + row + chunk * tiling.chunk_rows;
    std::uint32_t to = layout.raw + static_cast<std::uint32_t>(stage * tiling.raw_bytes);
    ptx::mbarrier_arrive_expect(barrier,
                                static_cast<std::uint32_t>(tiling.chunk_rows * (kPlain ? kTmaPitch : tiling.raw_pitch) * 4));
    if constexpr (kPlain) {
      ptx::tensor_copy(to, &maps.load[0], (begin + maps.load_offset[0]) & ~3, first, 0, barrier, policy);
    } else {
      for (int own = 0; own < 1 << tiling.load_bits; ++own, to += static_cast<std::uint32_t>(tiling.raw_class_bytes))
        ptx::tensor_copy(to, &maps.load[own], (begin + maps.load_offset[own]) & ~3, first >> tiling.load_bits, 0, barrier,
                         policy);
    }
  }
  /// Advances to the next chunk of static tiles.
  __device__ __forceinline__ void advance(const TmaTiling& tiling) {
    if (++chunk < tiling.chunks) return;
    chunk = 0;
    if (walk.more()) walk.advance();
  }
  /// Advances to the next chunk of dynamic tiles.
  __device__ __forceinline__ void advance_dynamic(const TmaTiling& tiling) {
    if (!walk.more() || ++chunk < tiling.chunks) return;
    chunk = 0;
    walk.above = dynamic;
    draw();
  }
  /// From here on tiles are dynamic, taken one ahead: `ahead` chunks have been copied.
  __device__ __forceinline__ void begin_to_draw(const TmaTiling& tiling, int ahead) {
    static_tiles = static_cast<std::uint32_t>((ahead + tiling.chunks - 1) / tiling.chunks) * walk.step;
    draw();
    if (chunk != 0 || has_ended) return;
    walk.above = dynamic;
    draw();
  }
  __device__ __forceinline__ void draw() { dynamic = static_tiles + order.draw(walk); }
};

/// Converts chunks: a thread has a position of two blocks of eight rows, then another one.
template <class Operand, bool kPlain, bool kSparse>
struct TmaConverter {
  const TmaTiling& tiling;
  float scale;
  int offsets[8];  // bytes from a block's first row to each row's first element
  Seen seen{};

  __device__ __forceinline__ TmaConverter(const TmaTiling& of, float by) : tiling(of), scale(by) {
    const int mask = (1 << tiling.load_bits) - 1;
#pragma unroll
    for (int c = 0; c < 8; ++c)
      offsets[c] = kPlain ? c * kTmaPitch * 4
                          : (c & mask) * tiling.raw_class_bytes +
                                ((c >> tiling.load_bits) * tiling.raw_pitch + tiling.lead[c & mask]) * 4;
  }
  /// Bytes from eight rows to the next eight.
  __device__ __forceinline__ int further() const {
    return kPlain ? 8 * kTmaPitch * 4 : (8 >> tiling.load_bits) * tiling.raw_pitch * 4;
  }

  /// The part of a chunk that exists.
  struct Part {
    int first, rows;
  };

  /// Position u of eight rows, from `from` on; `left` rows exist.
  template <bool kInside>
  __device__ __forceinline__ void load(const unsigned char* from, const Part& part, int left, int u, float (&v)[8]) const {
    const int rows = kInside || u >= part.first ? left : 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int offset = kPlain ? c * kTmaPitch * 4 : offsets[c];
      v[c] = kInside || c < rows ? *reinterpret_cast<const float*>(from + offset) : 0.0F;
    }
  }

  /// Converts a position of two blocks of eight rows. `to`: the place of the first; for mixed operands `low`: the place of the
  /// low halves of the first of the two blocks.
  __device__ __forceinline__ void put(const float (&a)[8], const float (&b)[8], unsigned char* to, unsigned char* low) {
    const int block_bytes = tiling.tile.window * 16;
    uint4 of_first[Operand::kParts], of_second[Operand::kParts];
    convert_seen<Operand>(a, scale, of_first, seen);
    convert_seen<Operand>(b, scale, of_second, seen);
    *reinterpret_cast<uint4*>(to) = of_first[0];
    *reinterpret_cast<uint4*>(to + kApart * block_bytes) = of_second[0];
    if constexpr (Operand::kParts == 2) {
      const uint4 one = of_first[1], other = of_second[1];
      *reinterpret_cast<uint4*>(low) = kSparse ? make_uint4(one.x, other.x, one.y, other.y) : one;
      *reinterpret_cast<uint4*>(low + block_bytes) = kSparse ? make_uint4(one.z, other.z, one.w, other.w) : other;
    }
  }
  /// The distance between blocks that are converted together (in mixed operands the second is 16 rows further on in a chunk of
  /// 32), and from a pair to the next.
  static constexpr int kApart = kSparse ? 2 : 1, kNext = kSparse ? 1 : 2;

  /// Converts the positions of a chunk's pairs of blocks, two at most, one after another. `turn`: the warp that has the last of
  /// them.
  template <bool kInside>
  __device__ __forceinline__ void run(const Part& part, const unsigned char* raw, unsigned char* to, int thread,
                                      std::uint32_t turn) {
    const int window = tiling.tile.window, items = tiling.chunk_blocks / 2 * window;
    const int block_bytes = window * 16, next_raw = kNext * further() - window * 4;
    unsigned char* const low = to + tiling.tile.items * 16;
#pragma unroll 1
    for (int item = first_item(thread, turn); item < items; item += kConverters) {
      const bool is_second = item >= window;
      const int u = is_second ? item - window : item, left = part.rows - (is_second ? 8 * kNext : 0);
      const unsigned char* const from = raw + (item * 4 + (is_second ? next_raw : 0));
      float a[8], b[8];
      load<kInside>(from, part, left, u, a);
      load<kInside>(from + kApart * further(), part, left - 8 * kApart, u, b);
      const int at = item * 16, second = at + (is_second ? block_bytes : 0);
      put(a, b, to + (kSparse ? at : second), low + second);
    }
  }
  __device__ static __forceinline__ int first_item(int thread, std::uint32_t turn) {
    return static_cast<int>((static_cast<std::uint32_t>(thread) + turn * 32) % kConverters);
  }

  /// How many of the numbers that run() gave to a thread are too small to be split.
  __device__ __forceinline__ std::uint32_t count_small(const Part& part, const unsigned char* raw, std::uint32_t least,
                                                       int thread, std::uint32_t turn) const {
    const int window = tiling.tile.window;
    std::uint32_t small = 0;
#pragma unroll 1
    for (int item = first_item(thread, turn); item < tiling.chunk_blocks / 2 * window; item += kConverters) {
      const int u = item < window ? item : item - window;
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        const int block = (item < window ? 0 : kNext) + i * kApart;
        float v[8];
        load<false>(raw + block * further() + u * 4, part, part.rows - block * 8, u, v);
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          const std::uint32_t bits = __float_as_uint(v[c]);
          small += bits + bits - 1 < least ? 1 : 0;
        }
      }
    }
    return small;
  }
};

/// Some of a thread's numbers of the chunk at `raw` in shared memory were zero or too small: counts those that are too small.
/// `least`: the bound for twice a number's bits, less one. Separate, so that it takes no registers from the converting loop.
template <class Operand, bool kPlain, bool kSparse>
__device__ __noinline__ std::uint32_t count_small(const TmaTiling& tiling, int first, int rows, std::uint32_t raw,
                                                  std::uint32_t least, int thread, std::uint32_t turn) {
  const auto* from = static_cast<const unsigned char*>(__cvta_shared_to_generic(raw));
  return TmaConverter<Operand, kPlain, kSparse>(tiling, 1.0F).count_small({first, rows}, from, least, thread, turn);
}

/// The warpgroup that converts a pipeline's tiles.
template <class Operand, bool kPlain, bool kSparse>
__device__ __forceinline__ void convert_tma(const TapGemm& gemm, const TmaTiling& tiling, const TmaMaps& maps,
                                            const TmaLayout& layout, unsigned char* sources, const unsigned char* raw,
                                            const OperandHeader* header, std::uint32_t* suspect_count, const TmaTiles& tiles,
                                            const DynamicOrder& order, int pipeline, int thread) {
  Walk walk(tiling, pipeline);
  const bool is_dynamic = kPlain && tiling.is_dynamic;
  const int warp = __shfl_sync(0xffffffffU, thread / 32, 0), lane = thread % 32;
  TmaCopier<kPlain> copier(gemm, tiling, walk, tiles, order);
  int copied = pipeline;  // the stage after the last that is copied ahead
  for (int stage = pipeline; stage < tiling.raw_stages; stage += kPairs) {
    if (copier.walk.more()) copied = stage + kPairs;
    if (thread == 0) copier.copy(gemm, tiling, maps, layout, stage);
    copier.advance(tiling);
  }
  __syncwarp();
  wait_for_grid_before();
  const SampleLook<true> look(header);
  if (look.is_mixed()) {
    for (int stage = pipeline; stage < copied; stage += kPairs) ptx::mbarrier_wait(layout.raw_full(stage), 0);
    return;
  }
  if (is_dynamic && thread == 0) copier.begin_to_draw(tiling, tiling.raw_stages / kPairs);
  const int exponent = look.exponent();
  const std::uint32_t least = 2 * SplitRange(exponent).least - 1;
  TmaConverter<Operand, kPlain, kSparse> converter(tiling, power_of_two(exponent));
  Ring raw_ring;
  raw_ring.stage = pipeline;
  TmaTurn at(pipeline);
  std::uint32_t turn = 0;  // no warp always has the third item
  for (; is_dynamic || walk.more(); walk.advance()) {
    if (is_dynamic) {
      ptx::mbarrier_wait(layout.raw_full(raw_ring.stage), raw_ring.parity);
      walk.above = tiles.read(tiles.of_raw(raw_ring.stage), lane);
    }
    std::uint32_t small = 0;
    typename TmaConverter<Operand, kPlain, kSparse>::Part part{0, static_cast<int>(gemm.rows)};
    if constexpr (!kPlain) {
      const std::uint32_t n = tiling.by_position_tiles.divide(walk.above);
      part.first = -tma_begin(gemm, tiling, walk.above - n * tiling.by_position_tiles.divisor);
    }
    at.wait_for_stage(layout, tiling.stages);
    if (is_dynamic) {
      if (thread == 0) tiles.of_stage(at.stage) = walk.above;
      if (walk.above == kNoTile) {
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(layout.full(at.barrier()));
        ptx::mbarrier_arrive(layout.empty(at.barrier()));
        return;
      }
    }
    unsigned char* to = sources + at.stage * tiling.source_bytes;
#pragma unroll 1
    for (int chunk = 0; chunk < tiling.chunks; ++chunk) {
      const unsigned char* from = raw + raw_ring.stage * tiling.raw_bytes + (kPlain ? tiling.lead[0] * 4 : 0);
      ptx::mbarrier_wait(layout.raw_full(raw_ring.stage), raw_ring.parity);
      if (kPlain || (part.first <= 0 && part.rows >= 8 * tiling.chunk_blocks))
        converter.template run<true>(part, from, to, thread, turn);
      else
        converter.template run<false>(part, from, to, thread, turn);
      const float2 fewest = __half22float2(converter.seen.fewest);
      if (!(fewest.x >= kLeastNormalHalf && fewest.y >= kLeastNormalHalf)) {
        const std::uint32_t chunk_raw = layout.raw + static_cast<std::uint32_t>(from - raw);
        small += count_small<Operand, kPlain, kSparse>(tiling, part.first, part.rows, chunk_raw, least, thread, turn);
        converter.seen.fewest = __half2half2(__float2half(kLargestHalf));
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(layout.raw_empty(raw_ring.stage));
      // The warps take turns, except the one that has the third item.
      const bool copies = is_dynamic ? warp == 0 : (static_cast<std::uint32_t>(warp) + turn) % 4 == 2;
      if (copies && lane == 0) {
        ptx::mbarrier_wait(layout.raw_empty(raw_ring.stage), raw_ring.parity);
        copier.copy(gemm, tiling, maps, layout, raw_ring.stage);
        if (is_dynamic) copier.advance_dynamic(tiling);
      }
      __syncwarp();
      if (!is_dynamic) copier.advance(tiling);
      advance_pipeline(raw_ring, pipeline, tiling.raw_stages);
      to += tiling.chunk_blocks * tiling.tile.window * 16;
      part.rows -= tiling.chunk_rows;
      ++turn;
    }
    const SuspectCount all = __reduce_add_sync(0xffffffffU, suspect_count_of(small, converter.seen.most));
    converter.seen = Seen();
    ptx::fence_async_shared();
    __syncwarp();
    if (lane == 0) {
      suspect_count[4 * at.stage + warp] = all;
      ptx::mbarrier_arrive(layout.full(at.barrier()));
    }
    ptx::mbarrier_arrive(layout.empty(at.barrier()));  // the other pipeline may convert the stage's next tile
    at.advance(tiling.stages);
  }
}

}  // namespace polyphase::cuda::tensor_core
