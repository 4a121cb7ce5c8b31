#pragma once
// The producers of kernel.cuh. They load rows of a tensor by bulk copies into a ring, and convert them from there into a ring
// of operand tiles [part][plane][block of 8 rows][position][8 rows].
//
// Only bulk copies keep enough bytes outstanding: ptxas waits for all global loads into registers together. A copy begins at
// the 16-byte boundary before an element; the reader of a row accounts for that offset.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/tensor_core/both_in_shared/stationary/layout.cuh"
#include "cuda/conv/tensor_core/operand/convert_rows.cuh"
#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/pipeline/mixed_exit.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// A pair's position in its sequence of tiles and steps, and the source address of that step.
template <class T>
struct Progress {
  Walk walk;
  const T* base = nullptr;   // row 0, plane 0, position 0 of the tile; of the step if planes take several steps
  int first = 0, last = 0;   // offsets from there that are inside a row
  int rows = 0, planes = 0;  // that exist, counted from the step's first
  int left = 0;              // remaining steps of the tile
  int plane_step = 0;

  __device__ __forceinline__ void begin_tile(const TapGemm& gemm, const StationaryTiling& tiling, const T* source) {
    if (!walk.more()) return;
    const TilePlace place = walk.place(tiling);
    const std::int64_t e0 = gemm.source_stride * place.position + gemm.source_origin - tiling.shift;
    base = source + (place.n * gemm.G + place.g) * gemm.rows * gemm.source_length + e0;
    first = static_cast<int>(max(-e0, static_cast<std::int64_t>(-0x7fffffff)));
    last = static_cast<int>(min(gemm.source_length - e0, static_cast<std::int64_t>(0x7fffffff)));
    rows = static_cast<int>(gemm.rows);
    planes = static_cast<int>(gemm.planes);
    left = tiling.count;
    plane_step = 0;
  }

  /// Returns true at the end of a tile.
  __device__ __forceinline__ bool advance(const TapGemm& gemm, const StationaryTiling& tiling, const T* source) {
    if (--left == 0) {
      walk.advance();
      begin_tile(gemm, tiling, source);
      return true;
    }
    if (tiling.plane_steps == 1) {
      rows -= tiling.rows;
      return false;
    }
    const Tile& tile = tiling.tile;
    int moved = tile.planes * tile.plane_step;
    planes -= tile.planes;
    if (++plane_step == tiling.plane_steps) {
      moved -= tiling.plane_steps * tile.planes * tile.plane_step;
      base += tile.rows * tile.length;
      rows -= tile.rows;
      planes = static_cast<int>(gemm.planes);
      plane_step = 0;
    }
    base += moved;
    first -= moved;
    last -= moved;
    return false;
  }
};

/// A lane's row of a tile's steps, as a bulk copy: from the 16-byte boundary before it on; nothing outside the row is read.
/// Rows sixteen apart have the same offset from that boundary.
struct RowCopy {
  std::uintptr_t start = 0;
  std::uint32_t bytes = 0, offset = 0;  // offset: into the row's place in shared memory

  template <class T>
  __device__ __forceinline__ void begin(const StationaryTiling& tiling, const Progress<T>& at, int own) {
    constexpr auto kGrain = static_cast<std::uintptr_t>(15);
    const int from = max(at.first, 0), to = max(min(at.last, span_of(tiling.tile)), from);
    const T* row = at.base + own * tiling.tile.length;
    start = reinterpret_cast<std::uintptr_t>(row + from) & ~kGrain;
    offset = static_cast<std::uint32_t>(start - (reinterpret_cast<std::uintptr_t>(row) & ~kGrain));
    bytes =
        from < to ? static_cast<std::uint32_t>(((reinterpret_cast<std::uintptr_t>(row + to) + kGrain) & ~kGrain) - start) : 0;
  }
};

/// Converts one step. An item is a position of a plane and of eight rows (two neighbouring positions in 16 bits). 128 threads
/// take neighbouring items, so that addresses advance by constants.
template <class Operand, bool kPaired>
struct Converter {
  using T = typename Operand::Source;
  using Word = std::conditional_t<kPaired, std::uint32_t, T>;
  static constexpr int kVector = Operand::kVector;
  static constexpr int kWidth = kPaired ? 2 : 1;
  static constexpr int kBytes = static_cast<int>(sizeof(T));
  static_assert(kVector == 8 && (!kPaired || sizeof(T) == 2));
  const StationaryTiling& tiling;
  float scale;
  std::uint32_t least;   // if twice a number's bits, less one, are below this, it is too small to be split
  int swaps;             // 0 or 1: which of a pair of positions is written first
  float slope;           // TapGemm::source_slope
  int offsets[kVector];  // bytes from a block's first row to each row's first element
  Seen seen{};
  std::uint32_t small = 0;  // numbers of the tile that are too small

  __device__ __forceinline__ void align(const T* base) { find_raw_rows(base, tiling, offsets); }

  /// What is read of a word's elements.
  __device__ __forceinline__ void activate(Word (&v)[kVector]) const {
    if (slope == 1.0F) return;
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      if constexpr (kPaired) {
        const auto active = [this](float value) { return value < 0.0F ? TapGemm::low(slope, value) : value; };
        if constexpr (std::is_same_v<T, __half>) {
          const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&v[c]));
          *reinterpret_cast<__half2*>(&v[c]) = __floats2half2_rn(active(both.x), active(both.y));
        } else {
          const float2 both = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&v[c]));
          *reinterpret_cast<__nv_bfloat162*>(&v[c]) = __floats2bfloat162_rn(active(both.x), active(both.y));
        }
      } else {
        const auto value = static_cast<float>(v[c]);
        if (value < 0.0F) v[c] = static_cast<T>(TapGemm::low(slope, value));
      }
    }
  }

  __device__ __forceinline__ void put(const Word (&v)[kVector], unsigned char* to) {
    auto* at = reinterpret_cast<uint4*>(to);
    if constexpr (kPaired) {
      // Half of the lanes write their second position first, to avoid bank conflicts.
      const std::uint32_t low = swaps ? 0x7632 : 0x5410, high = low ^ 0x2222;
      at[swaps] = make_uint4(__byte_perm(v[0], v[1], low), __byte_perm(v[2], v[3], low), __byte_perm(v[4], v[5], low),
                             __byte_perm(v[6], v[7], low));
      at[1 - swaps] = make_uint4(__byte_perm(v[0], v[1], high), __byte_perm(v[2], v[3], high), __byte_perm(v[4], v[5], high),
                                 __byte_perm(v[6], v[7], high));
    } else {
      uint4 parts[Operand::kParts];
      if constexpr (Operand::kScaled)
        convert_seen<Operand>(v, scale, parts, seen);
      else
        convert<Operand>(v, scale, parts);
#pragma unroll
      for (int part = 0; part < Operand::kParts; ++part) at[part * tiling.tile.items] = parts[part];
    }
  }

  struct Where {
    int u, plane, block;
    int from;  // bytes in the raw stage
    int to;    // bytes in the stage
  };

  __device__ __forceinline__ Where begin(int lead) const {
    const Tile& tile = tiling.tile;
    Where at{lead, 0, 0, 0, 0};
    if (!kPaired && tile.planes > 1) {
      at.u = static_cast<int>(tile.by_planes.divide(static_cast<std::uint32_t>(lead)));
      at.plane = lead - at.u * tile.planes;
    }
    at.from = (tile.stride * kWidth * at.u + at.plane * tile.plane_step) * kBytes;
    at.to = (at.plane * (tile.rows / kVector) * tile.window + kWidth * at.u) * 16;
    return at;
  }

  __device__ __forceinline__ void next(Where& at) const {
    const Tile& tile = tiling.tile;
    at.u += tiling.next_position;
    at.from += tiling.next_from;
    at.to += tiling.next_to;
    if constexpr (!kPaired) {
      at.plane += tiling.next_plane;
      if (at.plane >= tile.planes) {
        at.plane -= tile.planes;
        ++at.u;
        at.from += tiling.wrap_from;
        at.to += tiling.wrap_to;
      }
    }
    const int window = tile.window / kWidth;
    if (at.u >= window) {
      at.u -= window;
      ++at.block;
      at.from += tiling.block_from;  // `to` continues: blocks follow each other
    }
  }

  __device__ __forceinline__ void load(const unsigned char* raw, const Where& at, Word (&v)[kVector]) const {
#pragma unroll
    for (int c = 0; c < kVector; ++c) v[c] = *reinterpret_cast<const Word*>(raw + at.from + offsets[c]);
  }

  /// The same if some elements do not exist.
  __device__ __forceinline__ void load_at_edge(const unsigned char* raw, const Progress<T>& progress, const Where& at,
                                               Word (&v)[kVector]) const {
    const int rows = at.plane < progress.planes ? progress.rows - at.block * kVector : 0;
    const int e = tiling.tile.stride * kWidth * at.u + at.plane * tiling.tile.plane_step;
    const bool exists = e >= progress.first && e < progress.last;
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      const unsigned char* from = raw + at.from + offsets[c];
      if constexpr (kPaired) {
        const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
        std::uint32_t word = exists && c < rows ? halves[0] : 0;
        if (e + 1 >= progress.first && e + 1 < progress.last && c < rows) word |= static_cast<std::uint32_t>(halves[1]) << 16;
        v[c] = word;
      } else {
        v[c] = exists && c < rows ? *reinterpret_cast<const T*>(from) : T(0.0F);
      }
    }
  }

  __device__ __forceinline__ void run(const Progress<T>& progress, const unsigned char* raw, unsigned char* stage, int lead) {
    const Tile& tile = tiling.tile;
    const bool inside =
        progress.first <= 0 && span_of(tile) <= progress.last && progress.rows >= tile.rows && progress.planes >= tile.planes;
    const Where start = begin(lead);
    Where at = start;
    const int blocks = tile.rows / kVector;
    if (inside) {
      // Two items at a time if every lane of the warp has them.
#pragma unroll 1
      for (int pairs = (tile.items / kWidth - (lead & ~31) + 96) / (2 * kConverters); pairs > 0; --pairs) {
        const Where early = at;
        next(at);
        const Where late = at;
        next(at);
        Word a[kVector], b[kVector];
        load(raw, early, a);
        load(raw, late, b);
        activate(a);
        activate(b);
        put(a, stage + early.to);
        put(b, stage + late.to);
      }
    }
#pragma unroll 1
    for (; at.block < blocks; next(at)) {
      Word v[kVector];
      if (inside)
        load(raw, at, v);
      else
        load_at_edge(raw, progress, at, v);
      activate(v);
      put(v, stage + at.to);
    }
    if constexpr (Operand::kScaled) {
      const float2 fewest = __half22float2(seen.fewest);
      if (fewest.x >= kLeastNormalHalf && fewest.y >= kLeastNormalHalf) return;
      // Some were zero or too small: count those that are too small.
      seen.fewest = __half2half2(__float2half(kLargestHalf));
#pragma unroll 1
      for (at = start; at.block < blocks; next(at)) {
        Word v[kVector];
        load_at_edge(raw, progress, at, v);
        activate(v);
#pragma unroll
        for (int c = 0; c < kVector; ++c) {
          const std::uint32_t bits = __float_as_uint(v[c]);
          small += bits + bits - 1 < least ? 1 : 0;
        }
      }
    }
  }
};

template <class Operand, bool kPaired>
__device__ __forceinline__ void produce_stationary(const TapGemm& gemm, const StationaryTiling& tiling,
                                                   const StationaryLayout& layout, unsigned char* sources, unsigned char* raw,
                                                   const typename Operand::Source* __restrict__ source,
                                                   const OperandHeader* header, std::uint32_t* suspect_count, int pair,
                                                   int warp, int lane) {
  using T = typename Operand::Source;
  Progress<T> ahead{Walk(tiling, pair)}, now{Walk(tiling, pair)};
  ahead.begin_tile(gemm, tiling, source);
  now.begin_tile(gemm, tiling, source);
  Ring ahead_ring, raw_ring, ring;
  int lead = warp * 32 + lane;
  const int each = tiling.rows / 4, own = warp * each + lane;  // of a step's rows: a bulk copy costs its warp about 50 cycles
  const std::uintptr_t further = static_cast<std::uintptr_t>(tiling.rows * tiling.tile.length) * sizeof(T);
  RowCopy copy;
  std::uint32_t whole = 0;  // bytes of the warp's rows if all exist
  bool ahead_fresh = true;
  const auto fetch = [&] {
    if (!ahead.walk.more()) return;
    if (ahead_fresh || tiling.plane_steps > 1) {
      copy.begin(tiling, ahead, own);
      if (lane >= each) copy.bytes = 0;
      whole = __reduce_add_sync(0xffffffffU, copy.bytes);
    } else {
      copy.start += further;
    }
    std::uint32_t bytes = copy.bytes, total = whole;
    if (ahead.rows < tiling.rows) {
      if (own >= ahead.rows) bytes = 0;
      total = __reduce_add_sync(0xffffffffU, bytes);
    }
    const std::uint32_t barrier = layout.raw_full(ahead_ring.stage);
    ptx::mbarrier_wait(layout.raw_empty(ahead_ring.stage), ahead_ring.parity ^ 1);
    if (lane == 0) ptx::mbarrier_arrive_expect(barrier, total);
    __syncwarp();
    if (bytes > 0)
      ptx::bulk_copy(
          layout.raw + static_cast<std::uint32_t>(ahead_ring.stage * tiling.raw_bytes + own * tiling.raw_pitch) + copy.offset,
          reinterpret_cast<const void*>(copy.start), bytes, barrier);
    ahead_fresh = ahead.advance(gemm, tiling, source);
    ahead_ring.advance(tiling.raw_stages);
  };
  // With enough stages, one stays free, so that no warp waits for the slowest of the others.
  for (int i = tiling.raw_stages > 3 ? 2 : 1; i < tiling.raw_stages; ++i) fetch();
  if constexpr (Operand::kScaled) wait_for_grid_before();
  const SampleLook<Operand::kScaled> look(header);
  if (look.is_mixed()) return wait_for_copies(ahead_ring.stage, [&](int stage) { return layout.raw_full(stage); });
  const int exponent = look.exponent();
  Converter<Operand, kPaired> converter{tiling, power_of_two(exponent), 2 * SplitRange(exponent).least - 1, lane / 4 % 2,
                                        gemm.source_slope};
  bool fresh = true;
#pragma unroll 1
  while (now.walk.more()) {
    fetch();
    if (fresh || tiling.plane_steps > 1) converter.align(now.base);
    ptx::mbarrier_wait(layout.raw_full(raw_ring.stage), raw_ring.parity);
    ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
    converter.run(now, raw + raw_ring.stage * tiling.raw_bytes, sources + ring.stage * tiling.source_bytes, lead);
    ptx::mbarrier_arrive(layout.raw_empty(raw_ring.stage));
    if (Operand::kScaled && now.left == 1) {
      const SuspectCount all = __reduce_add_sync(0xffffffffU, suspect_count_of(converter.small, converter.seen.most));
      if (lane == 0) suspect_count[4 * ring.stage + warp] = all;
      converter.seen = Seen();
      converter.small = 0;
    }
    ptx::fence_async_shared();
    ptx::mbarrier_arrive(layout.full(ring.stage));
    raw_ring.advance(tiling.raw_stages);
    ring.advance(tiling.stages);
    lead = (lead + 32) % kConverters;  // no warp always has the odd item
    fresh = now.advance(gemm, tiling, source);
  }
}

}  // namespace polyphase::cuda::tensor_core
