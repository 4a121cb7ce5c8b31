#pragma once
// What feeds tensor_core_boxes.cuh: boxes of rows come by copies through tensor maps into a ring, and are converted from there
// to operand tiles [part][block of 8 rows][position][8 rows], each element once.

#include <cstdint>

#include "cuda/conv/sm90/operand_source.cuh"
#include "cuda/conv/sm90/ring.cuh"
#include "cuda/conv/sm90/self_repair.cuh"
#include "cuda/conv/sm90/tensor_core_boxes_maps.hpp"
#include "cuda/conv/sm90/tensor_core_boxes_steps.hpp"
#include "cuda/conv/sm90/tensor_core_resident_layout.cuh"
#include "cuda/conv/sm90/tensor_core_resident_source.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// Shared memory of a block: each consumer's staging, a ring of operand tiles, a ring of rows as they are, barriers, faults,
/// wrong tiles.
struct BoxesLayout {
  std::uint32_t base, sources, raw, staging, barriers;
  __device__ BoxesLayout(std::uint32_t start, const BoxesSteps& steps) : base(start), staging(start) {
    sources = staging + static_cast<std::uint32_t>(kPairs * steps.staging_bytes);
    raw = sources + static_cast<std::uint32_t>(steps.stages * steps.source_bytes);
    barriers = raw + static_cast<std::uint32_t>(steps.raw_stages * steps.raw_bytes);
  }
  /// Of one of kBoxesTurns tiles of a pipeline that follow each other.
  __device__ __forceinline__ std::uint32_t full(int turn) const { return barriers + static_cast<std::uint32_t>(turn) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int turn) const { return full(turn) + 8; }
  __device__ __forceinline__ std::uint32_t raw_full(int stage) const { return full(stage + kPairs * kBoxesTurns); }
  __device__ __forceinline__ std::uint32_t raw_empty(int stage) const { return raw_full(stage) + 8; }
  /// Four words: the faults that each converting warp has found in the stage's tile.
  __device__ __forceinline__ std::uint32_t faults(int stage) const { return raw_full(stage + kBoxesRingMost); }
  /// What each of the consumers' warps has to compute again.
  __device__ __forceinline__ std::uint32_t wrong(int warp) const {
    return faults(kBoxesTurns) + static_cast<std::uint32_t>(warp) * sizeof(WrongTiles::Entry) * WrongTiles::kMost;
  }
  /// Words: the tile of each raw stage, that of each stage of operands.
  __device__ __forceinline__ std::uint32_t tiles() const { return wrong(4 * kPairs); }
};
static_assert((kPairs * kBoxesTurns + kBoxesRingMost + kBoxesTurns) * 16 +
                      4 * kPairs * sizeof(WrongTiles::Entry) * WrongTiles::kMost + (kBoxesRingMost + kBoxesTurns) * 4 <=
                  kBoxesFixedBytes - 1024,
              "barriers to wrong tiles");

/// Which tiles a block has, told by whoever copies to whoever waits for a stage.
inline constexpr std::uint32_t kNoTile = 0xffffffffU;
struct BoxesTiles {
  volatile std::uint32_t* words;
  __device__ __forceinline__ volatile std::uint32_t& of_raw(int stage) const { return words[stage]; }
  __device__ __forceinline__ volatile std::uint32_t& of_stage(int stage) const { return words[kBoxesRingMost + stage]; }
};

/// Tiles that are drawn: a counter of each tile of weights, then of each tile and warp the faults of its sums and the warp's
/// tile before it that has any.
struct BoxesOrder {
  std::uint32_t* memory;
  static constexpr int kWarps = 4;
  __device__ __forceinline__ std::uint32_t draw(const Walk& walk) const { return atomicAdd(memory + walk.tile, 1U); }
  __device__ __forceinline__ std::uint32_t* doubts(const BoxesSteps& steps, const Walk& walk, int warp) const {
    const auto tiles = static_cast<std::uint32_t>(steps.weight_tiles);
    return memory + tiles + (static_cast<std::int64_t>(walk.above) * tiles + walk.tile) * (2 * kWarps) + 2 * warp;
  }
  /// Words of `memory`.
  [[nodiscard]] static std::int64_t words(const BoxesSteps& steps) { return steps.weight_tiles + steps.blocks * 2 * kWarps; }
};

/// Where a pipeline, a converting and a multiplying warpgroup, stands among the block's tiles: it has every kPairs-th. Both
/// pipelines share the stages of operands in the tiles' order. Their barriers are a pipeline's own, so many that none can be
/// a whole turn ahead of whoever waits.
struct BoxesTurn {
  int tile;   // of the block's
  int stage;  // of operands
  __device__ explicit BoxesTurn(int pipeline) : tile(pipeline), stage(pipeline) {}
  __device__ static __forceinline__ int barrier_of(int tile) {
    return (tile / kPairs & (kBoxesTurns - 1)) * kPairs + tile % kPairs;
  }
  __device__ static __forceinline__ std::uint32_t parity_of(int tile) {
    return static_cast<std::uint32_t>(tile / (kPairs * kBoxesTurns) & 1);
  }
  __device__ __forceinline__ int barrier() const { return barrier_of(tile); }
  __device__ __forceinline__ std::uint32_t parity() const { return parity_of(tile); }
  /// Until the stage's tile before this one has been multiplied.
  __device__ __forceinline__ void wait_for_stage(const BoxesLayout& layout, int stages) const {
    const int before = tile - stages;
    if (before >= 0) ptx::mbarrier_wait(layout.empty(barrier_of(before)), parity_of(before));
  }
  __device__ __forceinline__ void advance(int stages) {
    tile += kPairs;
    stage += kPairs;
    if (stage >= stages) stage -= stages;
  }
};

/// The next of a pipeline's own raw stages.
__device__ __forceinline__ void advance_pipeline(Ring& ring, int own, int stages) {
  ring.stage += kPairs;
  if (ring.stage < stages) return;
  ring.stage = own;
  ring.parity ^= 1;
}

/// The first number of a tile in the rows of its sample.
__device__ __forceinline__ int boxes_begin(const TapGemm& form, const BoxesSteps& steps, std::uint32_t tile) {
  return static_cast<int>(steps.position_begin + form.source_origin) + static_cast<int>(tile) * steps.position_step;
}

/// One thread: copies a pipeline's chunks, one after another.
template <bool kMayDraw>
struct BoxesCopier {
  Walk walk;
  BoxesTiles tiles;
  BoxesOrder order;
  std::uint32_t dealt = 0, drawn = 0;  // tiles that are not drawn; the next one
  int chunk = 0;
  bool has_ended = false;

  /// The next one, if there is one, to raw stage `stage`. Behind the last one that was drawn, the message that there is none.
  __device__ __forceinline__ void copy(const TapGemm& form, const BoxesSteps& steps, const BoxesMaps& maps,
                                       const BoxesLayout& layout, int stage) {
    const std::uint32_t barrier = layout.raw_full(stage);
    if (!walk.more()) {
      if (!kMayDraw || !steps.is_drawn || has_ended) return;
      has_ended = true;
      tiles.of_raw(stage) = kNoTile;
      ptx::mbarrier_arrive(barrier);
      return;
    }
    if (kMayDraw && steps.is_drawn) tiles.of_raw(stage) = walk.above;
    const std::uint32_t n = steps.by_position_tiles.divide(walk.above), g = steps.by_column_tiles.divide(walk.tile);
    const int begin = boxes_begin(form, steps, walk.above - n * steps.by_position_tiles.divisor);
    const int row = static_cast<int>((n * static_cast<std::uint32_t>(form.G) + g) * static_cast<std::uint32_t>(form.rows)) +
                    chunk * steps.chunk_rows;
    const std::uint64_t policy = steps.is_streamed ? ptx::staying_lines() : ptx::usual_lines();
    std::uint32_t to = layout.raw + static_cast<std::uint32_t>(stage * steps.raw_bytes);
    ptx::mbarrier_arrive_expect(barrier, static_cast<std::uint32_t>(steps.chunk_rows * steps.raw_pitch * 4));
    for (int own = 0; own < 1 << steps.load_bits; ++own, to += static_cast<std::uint32_t>(steps.raw_class_bytes))
      ptx::tensor_copy(to, &maps.load[own], (begin + maps.load_offset[own]) & ~3, row >> steps.load_bits, 0, barrier, policy);
    if (++chunk < steps.chunks) return;
    chunk = 0;
    if (!kMayDraw || dealt == 0) {
      walk.advance();
    } else {
      walk.above = drawn;
      draw();
    }
  }
  /// From here on tiles are drawn, one ahead: `ahead` chunks have been copied.
  __device__ __forceinline__ void begin_to_draw(const BoxesSteps& steps, int ahead) {
    dealt = static_cast<std::uint32_t>((ahead + steps.chunks - 1) / steps.chunks) * walk.step;
    draw();
    if (chunk != 0 || has_ended) return;
    walk.above = drawn;
    draw();
  }
  __device__ __forceinline__ void draw() { drawn = dealt + order.draw(walk); }
};

/// Converts chunks: a thread has a position of every eight rows, and some of those beyond the tile.
template <class Operand, bool kPlain, bool kSparse>
struct BoxesConverter {
  const BoxesSteps& steps;
  float scale;
  int offsets[8];  // bytes from a block's first row to each row's first element
  Seen seen{};

  __device__ __forceinline__ BoxesConverter(const BoxesSteps& of, float by) : steps(of), scale(by) {
    const int mask = (1 << steps.load_bits) - 1;
#pragma unroll
    for (int c = 0; c < 8; ++c)
      offsets[c] =
          kPlain ? c * kBoxesPitch * 4
                 : (c & mask) * steps.raw_class_bytes + ((c >> steps.load_bits) * steps.raw_pitch + steps.lead[c & mask]) * 4;
  }
  /// Bytes from eight rows to the next eight.
  __device__ __forceinline__ int further() const {
    return kPlain ? 8 * kBoxesPitch * 4 : (8 >> steps.load_bits) * steps.raw_pitch * 4;
  }

  /// What of a chunk exists.
  struct Part {
    int first, rows;
  };

  template <bool kInside>
  __device__ __forceinline__ void load(const unsigned char* raw, const Part& part, int block, int u, float (&v)[8]) const {
    const unsigned char* from = raw + block * further() + u * 4;
    const int rows = kInside || u >= part.first ? part.rows - block * 8 : 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int offset = kPlain ? c * kBoxesPitch * 4 : offsets[c];
      v[c] = kInside || c < rows ? *reinterpret_cast<const float*>(from + offset) : 0.0F;
    }
  }

  __device__ __forceinline__ void put(const float (&v)[8], unsigned char* to) {
    uint4 parts[Operand::kParts];
    convert_seen<Operand>(v, scale, parts, seen);
#pragma unroll
    for (int p = 0; p < Operand::kParts; ++p) reinterpret_cast<uint4*>(to)[p * steps.tile.items] = parts[p];
  }

  /// Two blocks of a position, `first` and `second` of the chunk; `to`: of its first.
  __device__ __forceinline__ void put(const float (&a)[8], const float (&b)[8], unsigned char* to, int first, int second) {
    const int block_bytes = steps.tile.window * 16;
    if constexpr (kSparse) {
      uint4 of_first[2], of_second[2];
      convert_seen<Operand>(a, scale, of_first, seen);
      convert_seen<Operand>(b, scale, of_second, seen);
      *reinterpret_cast<uint4*>(to + first * block_bytes) = of_first[0];
      *reinterpret_cast<uint4*>(to + second * block_bytes) = of_second[0];
      const uint4 low = of_first[1], other = of_second[1];
      uint4* const mixed = reinterpret_cast<uint4*>(to + (first + first % 2) * block_bytes) + steps.tile.items;
      mixed[0] = make_uint4(low.x, other.x, low.y, other.y);
      mixed[steps.tile.window] = make_uint4(low.z, other.z, low.w, other.w);
    } else {
      put(a, to + first * block_bytes);
      put(b, to + second * block_bytes);
    }
  }
  /// The first of a chunk's two blocks that are converted together: of operands that are mixed the second lies 16 rows further.
  __device__ static __forceinline__ int first_of(int pair) { return kSparse ? pair / 2 * 4 + pair % 2 : 2 * pair; }

  template <bool kInside>
  __device__ __forceinline__ void run(const Part& part, const unsigned char* raw, unsigned char* to, int thread, int turn) {
    constexpr int kApart = kSparse ? 2 : 1;
#pragma unroll 1
    for (int pair = 0; pair < steps.chunk_blocks / 2; ++pair) {
      const int block = first_of(pair);
      float a[8], b[8];
      load<kInside>(raw, part, block, thread, a);
      load<kInside>(raw, part, block + kApart, thread, b);
      put(a, b, to + thread * 16, block, block + kApart);
    }
#pragma unroll 1
    for (int item = (thread + turn) % kConverters; item < steps.chunk_blocks / kApart * steps.halo; item += kConverters) {
      const auto block = static_cast<int>(steps.by_halo.divide(static_cast<std::uint32_t>(item)));
      const int u = kBoxesPositions + item - block * steps.halo;
      float a[8];
      if constexpr (kSparse) {
        const int first = first_of(block);
        float b[8];
        load<kInside>(raw, part, first, u, a);
        load<kInside>(raw, part, first + 2, u, b);
        put(a, b, to + u * 16, first, first + 2);
      } else {
        load<kInside>(raw, part, block, u, a);
        put(a, to + block * steps.tile.window * 16 + u * 16);
      }
    }
  }

  /// How many of a thread's numbers are too small to be split.
  __device__ __forceinline__ std::uint32_t count_small(const Part& part, const unsigned char* raw, std::uint32_t least,
                                                       int thread, int turn) const {
    std::uint32_t small = 0;
    const auto look = [&](int block, int u) {
      float v[8];
      load<false>(raw, part, block, u, v);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const std::uint32_t bits = __float_as_uint(v[c]);
        small += bits + bits - 1 < least ? 1 : 0;
      }
    };
#pragma unroll 1
    for (int block = 0; block < steps.chunk_blocks; ++block) look(block, thread);
#pragma unroll 1
    for (int item = (thread + turn) % kConverters; item < steps.chunk_blocks * steps.halo; item += kConverters) {
      const auto block = static_cast<int>(steps.by_halo.divide(static_cast<std::uint32_t>(item)));
      look(block, kBoxesPositions + item - block * steps.halo);
    }
    return small;
  }
};

/// Some numbers of a chunk were zero or too small: how many too small? `least`: what twice such a number's bits, less one, are
/// below. Apart, so that nothing of it lives in the loop that converts.
template <class Operand, bool kPlain>
__device__ __noinline__ std::uint32_t count_small(const BoxesSteps& steps, int first, int rows, const unsigned char* raw,
                                                  std::uint32_t least, int thread, int turn) {
  return BoxesConverter<Operand, kPlain, false>(steps, 1.0F).count_small({first, rows}, raw, least, thread, turn);
}

/// The warpgroup that converts a pipeline's tiles.
template <class Operand, bool kPlain, bool kSparse>
__device__ __forceinline__ void convert_boxes(const TapGemm& form, const BoxesSteps& steps, const BoxesMaps& maps,
                                              const BoxesLayout& layout, unsigned char* sources, const unsigned char* raw,
                                              const OperandHeader* header, std::uint32_t* faults, const BoxesTiles& tiles,
                                              const BoxesOrder& order, int pipeline, int thread) {
  Walk walk(steps, pipeline);
  const bool is_drawn = kPlain && steps.is_drawn;
  BoxesCopier<kPlain> copier{walk, tiles, order};
  if (thread == 0) {
    for (int stage = pipeline; stage < steps.raw_stages; stage += kPairs) copier.copy(form, steps, maps, layout, stage);
  }
  __syncwarp();
  wait_for_grid_before();
  if (is_drawn && thread == 0) copier.begin_to_draw(steps, steps.raw_stages / kPairs);
  const int exponent = source_exponent(header);
  const std::uint32_t least = 2 * SplitRange(exponent).least - 1;
  BoxesConverter<Operand, kPlain, kSparse> converter(steps, power_of_two(exponent));
  Ring raw_ring;
  raw_ring.stage = pipeline;
  BoxesTurn at(pipeline);
  int turn = 0;  // no warp always has the items beyond the tile
  for (; is_drawn || walk.more(); walk.advance()) {
    if (is_drawn) {
      ptx::mbarrier_wait(layout.raw_full(raw_ring.stage), raw_ring.parity);
      walk.above = tiles.of_raw(raw_ring.stage);
    }
    std::uint32_t small = 0;
    typename BoxesConverter<Operand, kPlain, kSparse>::Part part{0, static_cast<int>(form.rows)};
    if constexpr (!kPlain) {
      const std::uint32_t n = steps.by_position_tiles.divide(walk.above);
      part.first = -boxes_begin(form, steps, walk.above - n * steps.by_position_tiles.divisor);
    }
    at.wait_for_stage(layout, steps.stages);
    if (is_drawn) {
      if (thread == 0) tiles.of_stage(at.stage) = walk.above;
      if (walk.above == kNoTile) {
        __syncwarp();
        if (thread % 32 == 0) ptx::mbarrier_arrive(layout.full(at.barrier()));
        ptx::mbarrier_arrive(layout.empty(at.barrier()));
        return;
      }
    }
    unsigned char* to = sources + at.stage * steps.source_bytes;
#pragma unroll 1
    for (int chunk = 0; chunk < steps.chunks; ++chunk) {
      const unsigned char* from = raw + raw_ring.stage * steps.raw_bytes + (kPlain ? steps.lead[0] * 4 : 0);
      ptx::mbarrier_wait(layout.raw_full(raw_ring.stage), raw_ring.parity);
      if (kPlain || (part.first <= 0 && part.rows >= 8 * steps.chunk_blocks))
        converter.template run<true>(part, from, to, thread, turn);
      else
        converter.template run<false>(part, from, to, thread, turn);
      const float2 fewest = __half22float2(converter.seen.fewest);
      if (!(fewest.x >= kLeastNormalHalf && fewest.y >= kLeastNormalHalf)) {
        small += count_small<Operand, kPlain>(steps, part.first, part.rows, from, least, thread, turn);
        converter.seen.fewest = __half2half2(__float2half(kLargestHalf));
      }
      __syncwarp();
      if (thread % 32 == 0) ptx::mbarrier_arrive(layout.raw_empty(raw_ring.stage));
      if (thread == 0) {
        ptx::mbarrier_wait(layout.raw_empty(raw_ring.stage), raw_ring.parity);
        copier.copy(form, steps, maps, layout, raw_ring.stage);
      }
      advance_pipeline(raw_ring, pipeline, steps.raw_stages);
      to += steps.chunk_blocks * steps.tile.window * 16;
      part.rows -= steps.chunk_rows;
      turn += 32;
    }
    const Faults all = __reduce_add_sync(0xffffffffU, faults_of(small, converter.seen.most));
    converter.seen = Seen();
    ptx::fence_async_shared();
    __syncwarp();
    if (thread % 32 == 0) {
      faults[4 * at.stage + thread / 32] = all;
      ptx::mbarrier_arrive(layout.full(at.barrier()));
    }
    ptx::mbarrier_arrive(layout.empty(at.barrier()));  // the stage's next tile may be the other pipeline's to convert
    at.advance(steps.stages);
  }
}

}  // namespace polyphase::cuda::tensor_core
