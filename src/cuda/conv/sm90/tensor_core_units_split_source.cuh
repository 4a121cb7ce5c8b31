#pragma once
// How weights and rows of the source come into shared memory, rows become halves, and those get into the registers of wgmma
// (tensor_core_units_split.cuh).

#include <cuda.h>

#include <cstdint>

#include "cuda/conv/sm90/operand.cuh"
#include "cuda/conv/sm90/operand_source.cuh"
#include "cuda/conv/sm90/ring.cuh"
#include "cuda/conv/sm90/tensor_core_units_source.cuh"
#include "cuda/conv/sm90/tensor_core_units_steps.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

/// One product of kUnitRows rows: columns of a tile from `column` on, of the neighbour `shift` behind the first. A half of the
/// columns each, or, where only its second class reads the neighbour, a quarter.
struct SplitUnitChunk {
  int shift, column, columns;
  [[nodiscard]] __host__ __device__ constexpr int half() const { return column / kSplitUnitHalf; }
  [[nodiscard]] __host__ __device__ constexpr bool is_lone() const { return columns < kSplitUnitHalf; }
};
/// All products of kUnitRows rows, in the order in which weights are packed.
struct SplitUnitChunks {
  SplitUnitChunk of[24];
  int count;
  __host__ __device__ constexpr int columns_before(int index) const {
    int columns = 0;
    for (int i = 0; i < index; ++i) columns += of[i].columns;
    return columns;
  }
};
__host__ __device__ constexpr SplitUnitChunks split_unit_chunks(const UnitPattern& pattern) {
  SplitUnitChunks chunks{};
  for (int shift = pattern.shifts() - 1; shift >= 0; --shift) {
    const bool ahead = pattern.from > 0 && shift == pattern.shifts() - 1, behind = pattern.until > 0 && shift == 0;
    const int quarter = kSplitUnitColumns / 4, first = ahead ? pattern.from * quarter : 0;
    const int end = behind ? pattern.until * quarter : kSplitUnitColumns;
    for (int column = first; column < end;) {
      const int until = (column / kSplitUnitHalf + 1) * kSplitUnitHalf;
      chunks.of[chunks.count++] = {shift, column, until - column};
      column = until;
    }
  }
  return chunks;
}

/// Shared memory of a block: stages of weights and elements as halves, the source as it came, barriers.
template <int kPattern>
struct SplitUnitLayout {
  static constexpr UnitPattern kOwn = kUnitPatterns[kPattern];
  static constexpr int kProducts = split_unit_chunks(kOwn).count;
  static constexpr int kFragments = kOwn.shifts();
  static constexpr bool kHasLone = kOwn.from % 2 != 0;
  static constexpr std::uint32_t kWeightBytes = split_unit_columns(kOwn) * kUnitRows * 4,
                                 kStageBytes = split_unit_stage_bytes(kOwn);
  static constexpr std::uint32_t kRawBytes = kSplitUnitRawBytes;
  static_assert(split_unit_chunks(kOwn).columns_before(split_unit_chunks(kOwn).count) == split_unit_columns(kOwn),
                "the host counts as the device");
  static_assert(kWeightBytes + kSplitUnitElementBytes == kStageBytes);
  std::uint32_t stages, raws, faults, barriers;
  __device__ __forceinline__ SplitUnitLayout(std::uint32_t base, const UnitSteps& steps)
      : stages(base),
        raws(base + static_cast<std::uint32_t>(steps.stages) * kStageBytes),
        faults(raws + kSplitUnitRaws * kRawBytes),
        barriers(faults + 16 * kUnitStagesMost) {}
  __device__ __forceinline__ std::uint32_t weights(int stage) const {
    return stages + static_cast<std::uint32_t>(stage) * kStageBytes;
  }
  __device__ __forceinline__ std::uint32_t raw(int stage) const { return raws + static_cast<std::uint32_t>(stage) * kRawBytes; }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ std::uint32_t raw_full(int stage) const { return full(kUnitStagesMost + stage); }
  __device__ __forceinline__ std::uint32_t raw_empty(int stage) const { return raw_full(stage) + 8; }
};

/// One thread: the weights of all stages of all tiles.
template <int kPattern>
__device__ __forceinline__ void copy_split_units(const UnitSteps& steps, const SplitUnitLayout<kPattern>& layout,
                                                 const unsigned char* packed) {
  using Layout = SplitUnitLayout<kPattern>;
  Ring ring;
  for (UnitWalk walk; walk.more(steps); walk.advance()) {
    const UnitPlace place = walk.place(steps);
    const unsigned char* weights =
        packed + static_cast<std::int64_t>(place.column_tile) * steps.count * static_cast<std::int64_t>(Layout::kWeightBytes);
    for (int step = 0; step < steps.count; ++step) {
      const std::uint32_t full = layout.full(ring.stage);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(full, Layout::kWeightBytes);
      ptx::bulk_copy(layout.weights(ring.stage), weights, Layout::kWeightBytes, full);
      weights += Layout::kWeightBytes;
      ring.advance(steps.stages);
    }
  }
}

/// The source of one stage after another, as it lies; one thread.
template <int kPattern>
struct SplitUnitFeed {
  using Layout = SplitUnitLayout<kPattern>;
  UnitWalk walk;
  Ring ring;
  int step = 0, element = 0, row = 0;
  __device__ __forceinline__ void next(const TapGemm& form, const UnitSteps& steps, const Layout& layout,
                                       const CUtensorMap* map) {
    if (!walk.more(steps)) return;
    if (step == 0) {
      const UnitPlace place = walk.place(steps);
      element = static_cast<int>(place.unit) + steps.first;
      row = static_cast<int>((place.n * form.G + place.g) * form.rows);
    }
    ptx::mbarrier_wait(layout.raw_empty(ring.stage), ring.parity ^ 1);
    ptx::mbarrier_arrive_expect(layout.raw_full(ring.stage), Layout::kRawBytes);
    ptx::tensor_copy(layout.raw(ring.stage), map, element, row, 0, layout.raw_full(ring.stage));
    ring.advance(kSplitUnitRaws);
    row += kUnitRows;
    if (++step < steps.count) return;
    step = 0;
    walk.advance();
  }
};

/// Where element `e` of a row lies among those of 16 rows, four times 16 bytes: even ones, then odd ones, so that neighbouring
/// units' lie side by side.
__device__ __forceinline__ int split_unit_element(int e) { return e % 2 * kSplitUnitOdd + e / 2 * 64; }

/// What a thread that makes halves has seen of a stage.
struct SplitUnitSeen {
  __half2 most = __half2half2(__float2half(0.0F)), fewest = __half2half2(__float2half(kLargestHalf));
  __device__ __forceinline__ void add(__half2 high) {
    most = __hmax2_nan(most, __habs2(high));
    fewest = __hmin2(fewest, __habs2(high));
  }
  __device__ __forceinline__ bool has_none() const {
    const float2 largest = __half22float2(most);
    return !(largest.x <= kLargestHalf && largest.y <= kLargestHalf);
  }
  __device__ __forceinline__ bool has_few() const {
    const float2 few = __half22float2(fewest);
    return !(few.x >= kLeastNormalHalf && few.y >= kLeastNormalHalf);
  }
};

/// 16 bytes: rows q, q + 4 and q + 8, q + 12 of an element as high halves, then low ones.
__device__ __forceinline__ uint4 split_unit_halves(const float (&v)[4], float scale, SplitUnitSeen& seen) {
  std::uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float a = v[2 * k] * scale, b = v[2 * k + 1] * scale;
    const __half2 high = __floats2half2_rn(a, b);
    const float2 back = __half22float2(high);
    const __half2 low = __floats2half2_rn((a - back.x) * kLowScale, (b - back.y) * kLowScale);
    seen.add(high);
    words[k] = *reinterpret_cast<const std::uint32_t*>(&high);
    words[2 + k] = *reinterpret_cast<const std::uint32_t*>(&low);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// A thread's share of the elements of 16 rows: rows q, q + 4, q + 8, q + 12 of every kEvery-th element.
struct SplitUnitMaker {
  static constexpr int kEvery = kSplitUnitMakers / 4, kItems = (kSplitUnitWidth + kEvery - 1) / kEvery, kBatch = 3;
  static_assert(kEvery % 2 == 0 && kItems % kBatch == 0 && kSplitUnitMakers % 4 == 0);
  int from, to;  // bytes
  int items;     // of this thread
  float scale;
  std::uint32_t tiny;  // of magnitudes that a half holds exactly, doubled less one
  __device__ __forceinline__ SplitUnitMaker(int exponent, int thread)
      : from((thread % 4 * kSplitUnitWidth + thread / 4) * 4),
        to(split_unit_element(thread / 4) + thread % 4 * 16),
        items((kSplitUnitWidth - thread / 4 + kEvery - 1) / kEvery),
        scale(power_of_two(exponent)),
        tiny(2 * SplitRange(exponent).least - 1) {}

  __device__ __forceinline__ void load(const unsigned char* raw, int item, float (&v)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      v[j] = *reinterpret_cast<const float*>(raw + from + (j * 4 * kSplitUnitWidth + item * kEvery) * 4);
  }
  /// 16 rows; some at a time, so that a warp does not wait for each. ready() is called before anything is written.
  template <class Ready>
  __device__ __forceinline__ void make(const unsigned char* raw, unsigned char* elements, SplitUnitSeen& seen,
                                       const Ready& ready) const {
#pragma unroll
    for (int first = 0; first < kItems; first += kBatch) {
      float v[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (first + i < kItems - 1 || items == kItems) load(raw, first + i, v[i]);
      if (first == 0) ready();
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (first + i < kItems - 1 || items == kItems)
          *reinterpret_cast<uint4*>(elements + to + (first + i) * (kEvery / 2) * 64) = split_unit_halves(v[i], scale, seen);
    }
  }
  /// Whether one of them is too small.
  __device__ __forceinline__ bool has_small(const unsigned char* raw) const {
    std::uint32_t least = 0xffffffffU;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      float v[4] = {};
      if (i < kItems - 1 || items == kItems) load(raw, i, v);
#pragma unroll
      for (int j = 0; j < 4; ++j) least = min(least, 2 * __float_as_uint(v[j]) - 1);
    }
    return least < tiny;
  }
};

/// kSplitUnitMakers threads: the elements of all stages of all tiles as halves, and what is wrong with them.
template <int kPattern>
__device__ __forceinline__ void split_unit_sources(const TapGemm& form, const UnitSteps& steps,
                                                   const SplitUnitLayout<kPattern>& layout, const CUtensorMap* map,
                                                   unsigned char* memory, const OperandHeader* source, int thread) {
  using Layout = SplitUnitLayout<kPattern>;
  SplitUnitFeed<kPattern> feed;
  for (int i = 0; thread == 0 && i < kSplitUnitRaws - 1; ++i) feed.next(form, steps, layout, map);
  // The copies need no scale: what they read was there before the sample's launch let this one begin.
  wait_for_grid_before();
  const SplitUnitMaker maker(source_exponent(source), thread);
  Ring ring, raw;
  for (UnitWalk walk; walk.more(steps); walk.advance()) {
#pragma unroll 1
    for (int step = 0; step < steps.count; ++step) {
      const unsigned char* from = memory + (layout.raw(raw.stage) - layout.stages);
      unsigned char* to = memory + (layout.weights(ring.stage) - layout.stages) + Layout::kWeightBytes;
      SplitUnitSeen seen;
      if (thread == 0) feed.next(form, steps, layout, map);
      ptx::mbarrier_wait(layout.raw_full(raw.stage), raw.parity);
      maker.make(from, to, seen, [&] { ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1); });
      std::uint32_t faults = seen.has_none() ? kNever : 0;
      if (seen.has_few()) faults |= maker.has_small(from) ? 1 : 0;
      faults = __reduce_or_sync(0xffffffffU, faults);
      ptx::mbarrier_arrive(layout.raw_empty(raw.stage));
      if (thread % 32 == 0)
        *reinterpret_cast<std::uint32_t*>(memory + (layout.faults - layout.stages) + ring.stage * 16 + thread / 32 * 4) =
            faults;
      ptx::mbarrier_arrive(layout.full(ring.stage));
      raw.advance(kSplitUnitRaws);
      ring.advance(steps.stages);
    }
  }
}

/// Fragments of a stage as wgmma takes them, of each neighbour: no register belongs to two.
template <int kFragments>
struct SplitUnitWords {
  std::uint32_t high[kFragments][4], low[kFragments][4];
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      ptx::keep(high[i]);
      ptx::keep(low[i]);
    }
  }
};

/// Reads elements of 16 rows: those of neighbour 0 are odd ones.
template <int kPattern>
__device__ __forceinline__ void load_split_units(const unsigned char* from, std::uint32_t zero,
                                                 SplitUnitWords<SplitUnitLayout<kPattern>::kFragments>& to) {
  constexpr int kShifts = kUnitPatterns[kPattern].shifts();
#pragma unroll
  for (int e = 0; e <= kShifts; ++e) {
    const uint4 words = *reinterpret_cast<const uint4*>(from + (e % 2 == 0 ? kSplitUnitOdd : 64) + e / 2 * 64);
    if (e < kShifts) {
      to.high[e][0] = words.x;
      to.high[e][2] = words.y;
      to.low[e][0] = words.z;
      to.low[e][2] = words.w;
    }
    // A number of its own: what belongs to two fragments the compiler would copy for each product.
    if (e > 0) {
      to.high[e - 1][1] = words.x ^ zero;
      to.high[e - 1][3] = words.y ^ zero;
      to.low[e - 1][1] = words.z ^ zero;
      to.low[e - 1][3] = words.w ^ zero;
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
