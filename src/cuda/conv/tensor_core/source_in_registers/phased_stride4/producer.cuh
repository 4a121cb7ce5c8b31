#pragma once
// Copies weights and rows of the source to shared memory, and reads them from there into the registers of wgmma (kernel.cuh).

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/chunks.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

/// The products, with 64, 128 or 256 columns each.
__host__ __device__ constexpr Phased4Chunks unit_chunks(const Phased4Pattern& pattern) {
  Phased4Chunks chunks{};
  int shift = pattern.shifts() - 1;
  // All products divide the sums in the same way: registers that belong to products of two sizes would be moved.
  const auto add = [&](int from, int until) {
    for (int q = from; q < until;) {
      int end = 4;
      if (pattern.until > q) end = pattern.until;
      if (pattern.from > q && pattern.from < end) end = pattern.from;
      chunks.of[chunks.count++] = {shift, q * kPhased4Quarter, (end - q) * kPhased4Quarter};
      q = end;
    }
    --shift;
  };
  if (pattern.from > 0) add(pattern.from, 4);
  for (int i = 0; i < pattern.middle; ++i) add(0, 4);
  if (pattern.until > 0) add(0, pattern.until);
  return chunks;
}

/// Shared memory of a block: stages of weights and source, barriers.
template <int kPattern>
struct Phased4Layout {
  static constexpr Phased4Pattern kOwn = kPhased4Patterns[kPattern];
  static constexpr int kDepths = unit_depths(kOwn);
  static constexpr std::uint32_t kDepthBytes = kOwn.columns() * kPhased4Rows * 2;  // weights of kPhased4Rows rows
  static constexpr std::uint32_t kWeightBytes = kDepths * kDepthBytes, kStageBytes = unit_stage_bytes(kOwn);
  std::uint32_t stages, barriers;
  __device__ __forceinline__ Phased4Layout(std::uint32_t base, const Phased4Tiling& tiling)
      : stages(base), barriers(base + static_cast<std::uint32_t>(tiling.stages) * kStageBytes) {}
  __device__ __forceinline__ std::uint32_t weights(int stage) const {
    return stages + static_cast<std::uint32_t>(stage) * kStageBytes;
  }
  __device__ __forceinline__ std::uint32_t source(int stage) const { return weights(stage) + kWeightBytes; }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
};

/// Run by one thread: copies all stages of all tiles.
template <int kPattern>
__device__ __forceinline__ void copy_units(const TapGemm& gemm, const Phased4Tiling& tiling,
                                           const Phased4Layout<kPattern>& layout, const CUtensorMap* map,
                                           const unsigned char* packed) {
  using Layout = Phased4Layout<kPattern>;
  const int per_tile = tiling.count / Layout::kDepths;
  Ring ring;
  for (Phased4Walk walk; walk.more(tiling); walk.advance()) {
    const Phased4Place place = walk.place(tiling);
    const int element = static_cast<int>(place.unit) + tiling.first;
    auto row = static_cast<int>((place.n * gemm.G + place.g) * gemm.rows);
    const unsigned char* weights =
        packed + static_cast<std::int64_t>(place.column_tile) * per_tile * static_cast<std::int64_t>(Layout::kWeightBytes);
    for (int step = 0; step < per_tile; ++step) {
      const std::uint32_t full = layout.full(ring.stage);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(full, Layout::kStageBytes);
      ptx::tensor_copy(layout.source(ring.stage), map, element, row, 0, full);
      ptx::bulk_copy(layout.weights(ring.stage), weights, Layout::kWeightBytes, full);
      weights += Layout::kWeightBytes;
      row += Layout::kDepths * kPhased4Rows;
      ring.advance(tiling.stages);
    }
  }
}

/// A stage's products form two groups: 16 rows each, or for 16 rows the neighbours ahead and those behind.
template <int kPattern, int kHalf>
struct Phased4Half {
  static constexpr Phased4Pattern kOwn = kPhased4Patterns[kPattern];
  static constexpr int kAll = kOwn.shifts();
  static constexpr bool kApart = unit_depths(kOwn) == 1;
  static constexpr int kDepth = kApart ? 0 : kHalf;
  static constexpr int kFirst = kApart && kHalf == 0 ? kAll / 2 : 0;  // neighbour
  static constexpr int kShifts = !kApart ? kAll : kHalf == 0 ? kAll - kAll / 2 : kAll / 2;
};

/// The elements of a thread's two units in 16 rows in the format of wgmma, for each neighbour. No register belongs to two: it
/// would be moved between products.
template <int kShifts>
struct Phased4Words {
  std::uint32_t v[kShifts][4];
  /// Keeps them in the registers that wgmma reads until here.
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (int i = 0; i < kShifts; ++i) ptx::opaque(v[i]);
  }
};

/// Reads rows q, q + 4, q + 8 and q + 12 of 16, which are in different banks. Packed weights have the same order. The element
/// of neighbour 0 is the second of a word.
template <class Half>
struct Phased4Reader {
  static constexpr int kFirstWord = (Half::kFirst + 1) / 2, kPitch = kPhased4Width * 2;
  static constexpr int kWords = (Half::kFirst + Half::kShifts + 1) / 2 - kFirstWord + 1;
  struct Raw {
    std::uint32_t v[kWords][4];
  };

  /// `from`: the thread's first word of the first row.
  __device__ __forceinline__ static void load(const unsigned char* from, Raw& to) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < kWords; ++i)
        to.v[i][j] = *reinterpret_cast<const std::uint32_t*>(from + j * 4 * kPitch + 4 * (kFirstWord + i));
    }
  }
  __device__ __forceinline__ static void pair(const Raw& raw, Phased4Words<Half::kShifts>& to) {
#pragma unroll
    for (int i = 0; i < Half::kShifts; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {  // row pairs k/2 of unit k%2
        const int e = Half::kFirst + i + k % 2, word = (e + 1) / 2 - kFirstWord, row = k / 2 * 2;
        to.v[i][k] = __byte_perm(raw.v[word][row], raw.v[word][row + 1], e % 2 == 0 ? 0x7632 : 0x5410);
      }
    }
    to.keep();
  }
};

}  // namespace polyphase::cuda::tensor_core
