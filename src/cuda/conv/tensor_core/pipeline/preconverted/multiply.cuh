#pragma once
// The pipeline of the preconverted kernel: one thread copies steps of both operands, two warpgroups multiply them. They release
// a stage after the products of the next one are issued, so the tensor cores never wait for them.

#include <cstdint>

#include "cuda/conv/cursor.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/tiling.hpp"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPreconvertedConsumers = kPreconvertedGroups * 128;
/// The producer is a whole warpgroup, so that its registers can move to the consumers; only one of its threads works.
inline constexpr int kPreconvertedThreads = kPreconvertedConsumers + 128;

/// Shared memory: stages of source and weights, staging, barriers.
struct PreconvertedLayout {
  std::uint32_t stages, staging, barriers, stage_bytes;
  __device__ PreconvertedLayout(std::uint32_t base, const PreconvertedTiling& tiling, int staging_of_group) {
    stages = base;
    stage_bytes = static_cast<std::uint32_t>(tiling.source_bytes + tiling.weight_bytes);
    staging = stages + static_cast<std::uint32_t>(tiling.stages) * stage_bytes;
    barriers = staging + static_cast<std::uint32_t>(kPreconvertedGroups * staging_of_group);
  }
  __device__ std::uint32_t stage(int index) const { return stages + static_cast<std::uint32_t>(index) * stage_bytes; }
  __device__ std::uint32_t full(int index) const { return barriers + static_cast<std::uint32_t>(index) * 16; }
  __device__ std::uint32_t empty(int index) const { return barriers + static_cast<std::uint32_t>(index) * 16 + 8; }
  /// One thread.
  __device__ __forceinline__ void begin_barriers(const PreconvertedTiling& tiling) const {
    for (int index = 0; index < tiling.stages; ++index) {
      ptx::mbarrier_init(full(index), 1);
      ptx::mbarrier_init(empty(index), kPreconvertedGroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
};

/// One thread issues a tile's copies, `count` steps from `cursor` on: source and weights of a step are contiguous bytes. With
/// kAlongPositions the second warpgroup's source is `second` bytes after the first one's.
template <bool kAlongPositions>
__device__ __forceinline__ void copy_tile(const PreconvertedTiling& tiling, const PreconvertedLayout& layout,
                                          const unsigned char* of_tile, std::int64_t second, const unsigned char* weights,
                                          Cursor cursor, int count, Ring& ring) {
  const SourceLayout& source = tiling.source;
  const auto plane_bytes = static_cast<std::uint32_t>(source.parts * kPreconvertedBlocks * source.tile_places * 16);
  const auto weight_bytes = static_cast<std::uint32_t>(tiling.weight_bytes);
  const std::int64_t row_step_bytes = source.planes * plane_bytes;
  for (int step = 0; step < count; ++step, cursor.advance(tiling), weights += weight_bytes) {
    const int plane = cursor.plane * tiling.planes;
    const std::uint32_t bytes =
        static_cast<std::uint32_t>(min(tiling.planes, static_cast<int>(source.planes) - plane)) * plane_bytes;
    const unsigned char* from = of_tile + cursor.row * row_step_bytes + plane * static_cast<std::int64_t>(plane_bytes);
    const std::uint32_t full = layout.full(ring.stage), to = layout.stage(ring.stage);
    ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
    ptx::mbarrier_arrive_expect(full, (kAlongPositions ? 2 : 1) * bytes + weight_bytes);
    ptx::bulk_copy(to, from, bytes, full);
    if constexpr (kAlongPositions)
      ptx::bulk_copy(to + static_cast<std::uint32_t>(tiling.source_bytes / 2), from + second, bytes, full);
    ptx::bulk_copy(to + static_cast<std::uint32_t>(tiling.source_bytes), weights, weight_bytes, full);
    ring.advance(tiling.stages);
  }
}

/// The products of up to two (plane, tap) of a step, issued together; start addresses and strides in units of 16 bytes.
template <class Operand, int kN>
struct WideUnits {
  using Mma = ptx::Wgmma<Operand::kType, kN>;
  std::uint64_t a0, b0, a1, b1;
  std::uint32_t a_depth, b_depth, a_part, b_part;

  /// sums += high*high (sums = high*high for split operands); cross += high*low + low*high in a separate group.
  template <int kUnits, int kCross>
  __device__ __forceinline__ void multiply(float (&sums)[kN / 2], float (&cross)[kCross]) const {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kUnits * kPreconvertedDepths; ++i) {
      const std::uint64_t a = (i < kPreconvertedDepths ? a0 : a1) + i % kPreconvertedDepths * a_depth;
      const std::uint64_t b = (i < kPreconvertedDepths ? b0 : b1) + i % kPreconvertedDepths * b_depth;
      Mma::multiply(sums, a, b, !Operand::kSplit || i > 0);
    }
    ptx::wgmma_commit();
    if constexpr (Operand::kSplit) {
#pragma unroll
      for (int i = 0; i < kUnits * kPreconvertedDepths; ++i) {
        const std::uint64_t a = (i < kPreconvertedDepths ? a0 : a1) + i % kPreconvertedDepths * a_depth;
        const std::uint64_t b = (i < kPreconvertedDepths ? b0 : b1) + i % kPreconvertedDepths * b_depth;
        Mma::multiply(cross, a + a_part, b, true);
        Mma::multiply(cross, a, b + b_part, true);
      }
      ptx::wgmma_commit();
    }
  }
};

/// Multiplies a tile's `count` steps as they come: sums += high*high (of the last step only for split operands, whose sums are
/// in `total`); cross += the mixed products. between(step) is called during each step's products. Returns the last stage, which
/// the caller releases when the products are done.
template <class Operand, int kTileColumns, int kSums, int kCross, class Between>
__device__ __forceinline__ int multiply_tile(const TapGemm& gemm, const PreconvertedTiling& tiling,
                                             const PreconvertedLayout& layout, int own_column, int own_source, int count,
                                             Ring& ring, float (&sums)[kSums], float (&cross)[kCross], float (&total)[kCross],
                                             const Between& between) {
  constexpr int kN = 2 * kSums;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // In units of 16 bytes, like all address strides here.
  const auto places = static_cast<std::uint32_t>(tiling.source.tile_places);
  const int all_taps = tiling.source.taps_apart ? 1 : static_cast<int>(gemm.taps);
  const auto tap_step = static_cast<std::uint32_t>(gemm.tap_step);
  constexpr std::uint32_t kPart = kPreconvertedBlocks * kTileColumns;
  const std::uint32_t b_part = kPreconvertedBlocks * places, b_plane = Operand::kParts * b_part;
  Cursor cursor;
  int last = 0;
  for (int step = 0; step < count; ++step, cursor.advance(tiling)) {
    const std::uint32_t stage = layout.stage(ring.stage);
    const int first_tap = cursor.tap * tiling.taps, taps = min(tiling.taps, all_taps - first_tap);
    const int planes = min(tiling.planes, static_cast<int>(tiling.source.planes) - cursor.plane * tiling.planes);
    std::uint64_t a =
        ptx::operand_descriptor(stage + static_cast<std::uint32_t>(tiling.source_bytes + own_column * 16), kTileColumns * 16);
    std::uint64_t b_of_tap = ptx::operand_descriptor(stage + static_cast<std::uint32_t>(own_source), places * 16) +
                             static_cast<std::uint32_t>(first_tap) * tap_step;
    std::uint64_t b = b_of_tap;
    ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
    int plane = 0;
    const auto next = [&] {
      a += Operand::kParts * kPart;
      b += b_plane;
      if (++plane < planes) return;
      plane = 0;
      a += static_cast<std::uint32_t>(tiling.planes - planes) * Operand::kParts * kPart;
      b_of_tap += tap_step;
      b = b_of_tap;
    };
#pragma unroll 1
    for (int left = taps * planes, all = left; left > 0; left -= 2) {
      const std::uint64_t a0 = a, b0 = b;
      next();
      const WideUnits<Operand, kN> units{a0, b0, a, b, 2 * kTileColumns, 2 * places, kPart, b_part};
      if constexpr (Operand::kSplit) ptx::fence_registers(sums);
      if (left > 1) {
        units.template multiply<2>(sums, cross);
        next();
      } else {
        units.template multiply<1>(sums, cross);
      }
      ptx::wgmma_wait<1>();  // all but the last products issued
      if (left == all && step != 0 && lane == 0) ptx::mbarrier_arrive(layout.empty(last));
      if constexpr (Operand::kSplit) {
        // The tensor cores truncate sums instead of rounding them, so short partial sums are added in ordinary f32
        // arithmetic. This overlaps the mixed products.
        ptx::fence_registers(sums);
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) total[i] += sums[i];
      }
    }
    between(step);
    last = ring.stage;
    ring.advance(tiling.stages);
  }
  return last;
}

/// sums = those of high halves, and the mixed ones.
template <int kSums>
__device__ __forceinline__ void join(const float (&total)[kSums], float (&cross)[kSums], float (&sums)[kSums]) {
  ptx::fence_registers(cross);
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = total[i] + cross[i] * (1.0F / kLowScale);
}

}  // namespace polyphase::cuda::tensor_core
