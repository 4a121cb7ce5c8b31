#pragma once
// Copies rows of the source to shared memory unchanged, and reads them from there into the registers of wgmma (kernel.cuh).

#include <cstdint>

#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/mixed_exit.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/tiling.hpp"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased2Copiers = 64;  // threads that copy for one consumer
inline constexpr int kPhased2Elements = 4;  // elements of a row for the two positions of a thread

/// Shared memory of a block: the weights of its channels, each consumer's ring, the channels' biases, barriers.
struct Phased2Layout {
  std::uint32_t weights, ring, bias, barriers, own;
  __device__ Phased2Layout(std::uint32_t base, const Phased2Tiling& tiling, int group) {
    const auto ring_bytes = static_cast<std::uint32_t>(tiling.stages * tiling.stage_bytes);
    weights = base;
    const std::uint32_t rings = weights + static_cast<std::uint32_t>(tiling.weight_bytes);
    ring = rings + static_cast<std::uint32_t>(group) * ring_bytes;
    bias = rings + kPhased2Groups * ring_bytes;
    barriers = bias + static_cast<std::uint32_t>(tiling.channels) * 4;
    own = barriers + 16 + static_cast<std::uint32_t>(group) * (kPhased2StagesMost * 16);
  }
  __device__ __forceinline__ std::uint32_t weights_full() const { return barriers; }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return own + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
};

/// The tiles of a consumer, one after another.
struct Phased2Walk {
  std::uint32_t weight_tile, tile, step;
  __device__ __forceinline__ Phased2Walk(const Phased2Tiling& tiling, int group) {
    const std::uint32_t copy = tiling.by_weight_tiles.divide(blockIdx.x);
    weight_tile = blockIdx.x - copy * tiling.by_weight_tiles.divisor;
    tile = copy * kPhased2Groups + static_cast<std::uint32_t>(group);
    step = tiling.by_weight_tiles.divide(gridDim.x) * kPhased2Groups;
  }
  __device__ __forceinline__ bool more(const Phased2Tiling& tiling) const { return tile < tiling.tiles; }
  __device__ __forceinline__ void advance() { tile += step; }
  __device__ __forceinline__ std::uint32_t group_of_channels(const Phased2Tiling& tiling) const {
    return tiling.by_channel_tiles.divide(weight_tile);
  }
  /// Relative to its group.
  __device__ __forceinline__ std::int64_t first_channel(const Phased2Tiling& tiling) const {
    return static_cast<std::int64_t>(weight_tile - group_of_channels(tiling) * tiling.by_channel_tiles.divisor) *
           tiling.channels;
  }
  struct Place {
    std::int64_t n, unit;
  };
  __device__ __forceinline__ Place place(const Phased2Tiling& tiling) const {
    const std::uint32_t n = tiling.by_tiles_of_row.divide(tile);
    return {n, static_cast<std::int64_t>(tile - n * tiling.by_tiles_of_row.divisor) * kPhased2Positions};
  }
};

/// Copies all steps of all tiles of a consumer, with zeros outside the rows.
template <class T>
__device__ __forceinline__ void copy_phased2(const TapGemm& gemm, const Phased2Tiling& tiling, const Phased2Layout& layout,
                                             const T* __restrict__ source, MixedExit mixed, int group, int thread) {
  const auto full_of = [&](int stage) { return layout.full(stage); };
  constexpr int kBytes = static_cast<int>(sizeof(T)), kVectors = phased2_vectors(kBytes);
  constexpr int kItems = kPhased2Rows * kVectors / kPhased2Copiers;
  static_assert(kPhased2Rows * kVectors % kPhased2Copiers == 0, "each thread copies as many vectors as the others");
  const std::int64_t row_bytes = gemm.source_length * kBytes;
  Ring ring;
  for (Phased2Walk walk(tiling, group); walk.more(tiling); walk.advance()) {
    const auto place = walk.place(tiling);
    const std::int64_t first = place.unit + tiling.first;
    const auto* from = reinterpret_cast<const unsigned char*>(source) +
                       (place.n * gemm.G + walk.group_of_channels(tiling)) * gemm.rows * row_bytes + first * kBytes;
    auto rows = static_cast<int>(gemm.rows);
    const bool inside = first >= 0 && first + kVectors * 16 / kBytes <= gemm.source_length;
    for (int step = 0; step < tiling.count; ++step, rows -= kPhased2Rows, from += kPhased2Rows * row_bytes) {
      const std::uint32_t to = layout.ring + static_cast<std::uint32_t>(ring.stage * tiling.stage_bytes);
      if (mixed.is_before(ring, tiling.stages, full_of)) return;
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
#pragma unroll 3
      for (int i = 0; i < kItems; ++i) {
        const int item = thread + i * kPhased2Copiers, row = item / kVectors, vector = item - row * kVectors;
        const std::int64_t e = first + vector * (16 / kBytes);
        const bool exists = (inside || (e >= 0 && e < gemm.source_length)) && row < rows;
        const void* own = exists ? static_cast<const void*>(from + row * row_bytes + vector * 16) : source;
        ptx::copy_vector_or_zero(to + static_cast<std::uint32_t>(item * 16), own, exists);
      }
      ptx::copy_arrive(layout.full(ring.stage));
      ring.advance(tiling.stages);
    }
  }
  mixed.end(ring, full_of);
}

/// The elements of a thread's positions in 16 rows in the format of wgmma, as pairs of rows. A row's element 0 is an odd one.
template <int kParts>
struct Phased2Words {
  std::uint32_t v[kParts][kPhased2Elements][2];
  /// Keeps them in the registers that wgmma reads until here.
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (auto& part : v)
#pragma unroll
      for (auto& element : part) ptx::opaque(element);
  }
};

/// Reads rows q, q + 4, q + 8 and q + 12 of 16, which are in different banks. Packed weights have the same order.
template <class Operand>
struct Phased2Reader {
  using T = typename Operand::Source;
  static constexpr int kPitch = phased2_vectors(static_cast<int>(sizeof(T))) * 16;
  struct Raw {
    std::uint32_t v[sizeof(T) == 2 ? 3 : kPhased2Elements][4];
  };
  int at;  // bytes from 16 rows of a stage to this thread's first pair
  float scale;
  std::uint32_t tiny;  // limit for magnitudes that a half holds exactly, doubled less one
  __half2 most, fewest;
  std::uint32_t small;  // count of those that were too small

  __device__ __forceinline__ Phased2Reader(const Phased2Tiling& tiling, int exponent, int slot, int lane)
      : at(lane % 4 * kPitch + (2 * slot + tiling.lead - 1) * static_cast<int>(sizeof(T))),
        scale(power_of_two(exponent)),
        tiny(2 * SplitRange(exponent).least - 1) {}

  __device__ __forceinline__ void begin_tile() {
    most = __half2half2(__float2half(0.0F));
    fewest = __half2half2(__float2half(kLargestHalf));
    small = 0;
  }

  __device__ __forceinline__ void load(const unsigned char* rows, Raw& to) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const unsigned char* from = rows + at + j * 4 * kPitch;
      if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int i = 0; i < 3; ++i) to.v[i][j] = *reinterpret_cast<const std::uint32_t*>(from + 4 * i);
      } else {
        to.v[0][j] = *reinterpret_cast<const std::uint32_t*>(from + 4);
        const uint2 both = *reinterpret_cast<const uint2*>(from + 8);
        to.v[1][j] = both.x;
        to.v[2][j] = both.y;
        to.v[3][j] = *reinterpret_cast<const std::uint32_t*>(from + 16);
      }
    }
  }

  __device__ __forceinline__ void convert(const Raw& raw, Phased2Words<Operand::kParts>& to) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int i = 0; i < kPhased2Elements; ++i) {
        if constexpr (sizeof(T) == 2) {
          to.v[0][i][k] = __byte_perm(raw.v[(i + 1) / 2][2 * k], raw.v[(i + 1) / 2][2 * k + 1], i % 2 == 0 ? 0x7632 : 0x5410);
        } else {
          const float a = __uint_as_float(raw.v[i][2 * k]) * scale, b = __uint_as_float(raw.v[i][2 * k + 1]) * scale;
          const __half2 half = __floats2half2_rn(a, b);
          to.v[0][i][k] = *reinterpret_cast<const std::uint32_t*>(&half);
          if constexpr (Operand::kSplit) to.v[1][i][k] = low_parts(a, b, half);
          most = __hmax2_nan(most, __habs2(half));
          fewest = __hmin2(fewest, __habs2(half));
        }
      }
    }
    if constexpr (Operand::kScaled) check(raw);
  }

  /// Some were zero or too small: counts those that are too small.
  __device__ __forceinline__ void check(const Raw& raw) {
    const float2 few = __half22float2(fewest);
    if (few.x >= kLeastNormalHalf && few.y >= kLeastNormalHalf) return;
    fewest = __half2half2(__float2half(kLargestHalf));
#pragma unroll
    for (int i = 0; i < kPhased2Elements; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) small += 2 * raw.v[i][j] - 1 < tiny ? 1U : 0U;
    }
  }

  /// Sums at least this large are right in spite of what the tile's numbers have lost as halves: each number that is too small
  /// counts once per sum, and so does each such weight. Called by whole warps; the result depends on what the warp itself has
  /// read.
  __device__ __forceinline__ float unsafe_below(float products, std::uint32_t weight_suspect_count) const {
    const std::uint32_t of_weights = weight_suspect_count & ~kNever;
    std::uint32_t own = 0;
    bool never = (weight_suspect_count & kNever) != 0;
    if constexpr (Operand::kScaled) {
      const float2 largest = __half22float2(most);
      never = never || !(largest.x <= kLargestHalf && largest.y <= kLargestHalf);
      own = __reduce_add_sync(0xffffffffU, small);
    }
    if (__any_sync(0xffffffffU, never) != 0) return INFINITY;
    return 32.0F * fminf(products, static_cast<float>(of_weights) + static_cast<float>(own));
  }
};

}  // namespace polyphase::cuda::tensor_core
