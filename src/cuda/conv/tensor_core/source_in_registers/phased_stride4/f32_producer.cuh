#pragma once
// Copies weights and rows of the source to shared memory, converts rows to halves, and reads these into the registers of wgmma
// (f32_kernel.cuh).

#include <cuda.h>

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/mixed_exit.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/chunks.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

/// The half of the columns that a product belongs to; a quarter, if only its second class reads the neighbour.
[[nodiscard]] __host__ __device__ constexpr int f32_unit_half(const Phased4Chunk& chunk) {
  return chunk.column / kPhased4F32Half;
}
[[nodiscard]] __host__ __device__ constexpr bool is_lone(const Phased4Chunk& chunk) { return chunk.columns < kPhased4F32Half; }
/// Products of half of the columns each, or fewer.
__host__ __device__ constexpr Phased4Chunks f32_unit_chunks(const Phased4Pattern& pattern) {
  Phased4Chunks chunks{};
  for (int shift = pattern.shifts() - 1; shift >= 0; --shift) {
    const bool ahead = pattern.from > 0 && shift == pattern.shifts() - 1, behind = pattern.until > 0 && shift == 0;
    const int quarter = kPhased4F32Columns / 4, first = ahead ? pattern.from * quarter : 0;
    const int end = behind ? pattern.until * quarter : kPhased4F32Columns;
    for (int column = first; column < end;) {
      const int until = (column / kPhased4F32Half + 1) * kPhased4F32Half;
      chunks.of[chunks.count++] = {shift, column, until - column};
      column = until;
    }
  }
  return chunks;
}

/// Shared memory of a block: stages of weights and elements as halves, the source unchanged, barriers.
template <int kPattern>
struct Phased4F32Layout {
  static constexpr Phased4Pattern kOwn = kPhased4Patterns[kPattern];
  static constexpr int kProducts = f32_unit_chunks(kOwn).count;
  static constexpr int kFragments = kOwn.shifts();
  static constexpr bool kHasLone = kOwn.from % 2 != 0;
  static constexpr std::uint32_t kWeightBytes = f32_unit_columns(kOwn) * kPhased4Rows * 4,
                                 kStageBytes = f32_unit_stage_bytes(kOwn);
  static constexpr std::uint32_t kRawBytes = kPhased4F32RawBytes;
  static_assert(f32_unit_chunks(kOwn).columns_before(f32_unit_chunks(kOwn).count) == f32_unit_columns(kOwn),
                "the host counts as the device");
  static_assert(kWeightBytes + kPhased4F32ElementBytes == kStageBytes);
  std::uint32_t stages, raws, suspect_count, barriers;
  __device__ __forceinline__ Phased4F32Layout(std::uint32_t base, const Phased4Tiling& tiling)
      : stages(base),
        raws(base + static_cast<std::uint32_t>(tiling.stages) * kStageBytes),
        suspect_count(raws + kPhased4F32Raws * kRawBytes),
        barriers(suspect_count + 16 * kPhased4StagesMost) {}
  __device__ __forceinline__ std::uint32_t weights(int stage) const {
    return stages + static_cast<std::uint32_t>(stage) * kStageBytes;
  }
  __device__ __forceinline__ std::uint32_t raw(int stage) const { return raws + static_cast<std::uint32_t>(stage) * kRawBytes; }
  /// For the tile whose last stage this is: one word per converting warp.
  __device__ __forceinline__ std::uint32_t* suspect_count_of(unsigned char* memory, int stage) const {
    return reinterpret_cast<std::uint32_t*>(memory + (suspect_count - stages) + stage * 16);
  }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ std::uint32_t raw_full(int stage) const { return full(kPhased4StagesMost + stage); }
  __device__ __forceinline__ std::uint32_t raw_empty(int stage) const { return raw_full(stage) + 8; }
};

/// Run by one thread: copies all stages of all tiles, the source unchanged and the weights.
template <int kPattern>
__device__ __forceinline__ void copy_f32_units(const TapGemm& gemm, const Phased4Tiling& tiling,
                                               const Phased4F32Layout<kPattern>& layout, const CUtensorMap* map,
                                               const unsigned char* packed, const OperandHeader* header) {
  using Layout = Phased4F32Layout<kPattern>;
  Ring ring, raw;
  bool has_asked = false;
  // Whether the copier ends here (MixedExit); all it has copied has arrived then.
  const auto is_over = [&](int raws, int stages) {
    has_asked = true;
    wait_for_grid_before();
    if (!is_mixed_of_thread(header)) return false;
    wait_for_copies(raws, [&](int stage) { return layout.raw_full(stage); });
    wait_for_copies(stages, [&](int stage) { return layout.full(stage); });  // the converters arrive too
    return true;
  };
  for (Phased4Walk walk; walk.more(tiling); walk.advance()) {
    const Phased4Place place = walk.place(tiling);
    const int element = static_cast<int>(place.unit) + tiling.first;
    auto row = static_cast<int>((place.n * gemm.G + place.g) * gemm.rows);
    const unsigned char* weights =
        packed + static_cast<std::int64_t>(place.column_tile) * tiling.count * static_cast<std::int64_t>(Layout::kWeightBytes);
    for (int step = 0; step < tiling.count; ++step) {
      if (!has_asked && (raw.parity | ring.parity) != 0 &&
          is_over(raw.parity != 0 ? kPhased4F32Raws : raw.stage, ring.parity != 0 ? tiling.stages : ring.stage))
        return;
      ptx::mbarrier_wait(layout.raw_empty(raw.stage), raw.parity ^ 1);
      ptx::mbarrier_arrive_expect(layout.raw_full(raw.stage), Layout::kRawBytes);
      ptx::tensor_copy(layout.raw(raw.stage), map, element, row, 0, layout.raw_full(raw.stage));
      raw.advance(kPhased4F32Raws);
      const std::uint32_t full = layout.full(ring.stage);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(full, Layout::kWeightBytes);
      ptx::bulk_copy(layout.weights(ring.stage), weights, Layout::kWeightBytes, full);
      weights += Layout::kWeightBytes;
      row += kPhased4Rows;
      ring.advance(tiling.stages);
    }
  }
  if (!has_asked) (void)is_over(raw.stage, ring.stage);
}

/// The place of rows q of element `e` among the high halves of 16 rows, and among the low ones. Elements 2*i - 1 and 2*i take
/// 64 bytes: for each q 8 of one and 8 of the other, in the order in which a thread reads them.
__device__ __forceinline__ int f32_unit_element(int e, int q) { return (e + 1) / 2 * 64 + q * 16 + (e + 1) % 2 * 8; }

/// The range of a converting thread's numbers in a stage: the largest high halves, and the least nonzero magnitude, as the bits
/// of a float doubled less one.
struct Phased4F32Seen {
  __half2 most = __half2half2(__float2half(0.0F));
  std::uint32_t least = 0xffffffffU;
  __device__ __forceinline__ static std::uint32_t magnitude(float v) { return 2 * __float_as_uint(v) - 1; }
  __device__ __forceinline__ void add(__half2 high, float a, float b) {
    most = __hmax2_nan(most, __habs2(high));
    least = min(least, min(magnitude(a), magnitude(b)));
  }
  __device__ __forceinline__ bool has_none() const {
    const float2 largest = __half22float2(most);
    return !(largest.x <= kLargestHalf && largest.y <= kLargestHalf);
  }
};

/// Writes rows q, q + 4 and q + 8, q + 12 of an element as high halves and as low ones, 8 bytes each.
__device__ __forceinline__ void put_f32_unit(const float (&v)[4], float scale, unsigned char* to, Phased4F32Seen& seen) {
  std::uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float a = v[2 * k] * scale, b = v[2 * k + 1] * scale;
    const __half2 high = __floats2half2_rn(a, b);
    words[2 + k] = low_parts(a, b, high);
    seen.add(high, v[2 * k], v[2 * k + 1]);
    words[k] = *reinterpret_cast<const std::uint32_t*>(&high);
  }
  *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  *reinterpret_cast<uint2*>(to + kPhased4F32Low) = make_uint2(words[2], words[3]);
}

/// A thread's share of the elements of 16 rows: rows q, q + 4, q + 8, q + 12 of every kEvery-th element.
struct Phased4F32Maker {
  static constexpr int kEvery = kPhased4F32Makers / 4, kItems = (kPhased4F32Width + kEvery - 1) / kEvery, kBatch = 3;
  static_assert(kEvery % 2 == 0 && kItems % kBatch == 0 && kPhased4F32Makers % 4 == 0);
  int from, to;  // bytes
  int items;     // of this thread
  float scale;
  std::uint32_t tiny;  // limit for magnitudes that a half holds exactly, doubled less one
  __device__ __forceinline__ Phased4F32Maker(int exponent, int thread)
      : from((thread % 4 * kPhased4F32Width + thread / 4) * 4),
        to(f32_unit_element(thread / 4, thread % 4)),
        items((kPhased4F32Width - thread / 4 + kEvery - 1) / kEvery),
        scale(power_of_two(exponent)),
        tiny(2 * SplitRange(exponent).least - 1) {}

  __device__ __forceinline__ void load(const unsigned char* raw, int item, float (&v)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      v[j] = *reinterpret_cast<const float*>(raw + from + (j * 4 * kPhased4F32Width + item * kEvery) * 4);
  }
  /// Converts 16 rows, several elements at a time, so that a warp does not wait for each.
  __device__ __forceinline__ void make(const unsigned char* raw, unsigned char* elements, Phased4F32Seen& seen) const {
#pragma unroll
    for (int first = 0; first < kItems; first += kBatch) {
      float v[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (first + i < kItems - 1 || items == kItems) load(raw, first + i, v[i]);
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (first + i < kItems - 1 || items == kItems)
          put_f32_unit(v[i], scale, elements + to + (first + i) * (kEvery / 2) * 64, seen);
    }
  }
  /// Counts those that are too small.
  __device__ __forceinline__ std::uint32_t count_small(const unsigned char* raw) const {
    std::uint32_t count = 0;
#pragma unroll 1
    for (int i = 0; i < items; ++i) {
      float v[4];
      load(raw, i, v);
#pragma unroll
      for (int j = 0; j < 4; ++j) count += Phased4F32Seen::magnitude(v[j]) < tiny ? 1 : 0;
    }
    return count;
  }
};

/// The suspect count of a thread's numbers in a tile.
struct Phased4F32SuspectCount {
  static constexpr std::uint32_t kMost = 1U << 24;  // limit for those that are too small: more make no difference
  std::uint32_t small = 0;
  bool never = false;
  /// The count of a warp, in all of its lanes, in the format of make_operand.
  __device__ __forceinline__ std::uint32_t of_warp() const {
    const std::uint32_t count = __reduce_add_sync(0xffffffffU, min(small, kMost));
    return __any_sync(0xffffffffU, never) ? count | kNever : count;
  }
};

/// Run by kPhased4F32Makers threads: converts the elements of all stages of all tiles to halves, and writes the suspect count
/// with a tile's last stage.
template <int kPattern>
__device__ __forceinline__ void f32_unit_sources(const Phased4Tiling& tiling, const Phased4F32Layout<kPattern>& layout,
                                                 unsigned char* memory, int exponent, int thread) {
  using Layout = Phased4F32Layout<kPattern>;
  const Phased4F32Maker maker(exponent, thread);
  Ring ring, raw;
  for (Phased4Walk walk; walk.more(tiling); walk.advance()) {
    Phased4F32SuspectCount suspect_count;
#pragma unroll 1
    for (int step = 0; step < tiling.count; ++step) {
      const unsigned char* from = memory + (layout.raw(raw.stage) - layout.stages);
      unsigned char* to = memory + (layout.weights(ring.stage) - layout.stages) + Layout::kWeightBytes;
      Phased4F32Seen seen;
      ptx::mbarrier_wait(layout.raw_full(raw.stage), raw.parity);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      maker.make(from, to, seen);
      suspect_count.never |= seen.has_none();
      if (seen.least < maker.tiny) suspect_count.small += maker.count_small(from);
      ptx::mbarrier_arrive(layout.raw_empty(raw.stage));
      if (step == tiling.count - 1) {
        const std::uint32_t all = suspect_count.of_warp();
        if (thread % 32 == 0) layout.suspect_count_of(memory, ring.stage)[thread / 32] = all;
      }
      ptx::mbarrier_arrive(layout.full(ring.stage));
      raw.advance(kPhased4F32Raws);
      ring.advance(tiling.stages);
    }
  }
}

/// Fragments of a stage in the format of wgmma, for each neighbour: no register belongs to two.
template <int kFragments>
struct Phased4F32Words {
  std::uint32_t high[kFragments][4], low[kFragments][4];
  __device__ __forceinline__ static void keep(std::uint32_t (&part)[kFragments][4]) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) ptx::opaque(part[i]);
  }
};

/// Reads one kind of halves of 16 rows, of elements from 2*i - 1 on; those of neighbour 0 are the first.
template <int kShifts>
__device__ __forceinline__ void load_f32_units(const unsigned char* from, std::uint32_t zero, std::uint32_t (&to)[kShifts][4]) {
#pragma unroll
  for (int i = 0; i <= kShifts; i += 2) {
    const uint4 words = *reinterpret_cast<const uint4*>(from + i / 2 * 64);
#pragma unroll
    for (int e = i; e < i + 2 && e <= kShifts; ++e) {
      const std::uint32_t first = e == i ? words.x : words.z, second = e == i ? words.y : words.w;
      if (e < kShifts) {
        to[e][0] = first;
        to[e][2] = second;
      }
      // A copy of its own: the compiler would copy a register of two fragments for each product.
      if (e > 0) {
        to[e - 1][1] = first ^ zero;
        to[e - 1][3] = second ^ zero;
      }
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
