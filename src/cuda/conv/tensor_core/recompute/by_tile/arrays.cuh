#pragma once
// The memory of a call of the by_tile kernel.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/operand.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"
#include "cuda/conv/tensor_core/recompute/by_tile/work.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/ptx/acquire.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// Pointers into ByTileMemory.
struct ByTileArrays {
  ByTileWords* words;
  std::uint32_t* multiplied;  ///< tiles of each unit in the list that are multiplied
  std::uint32_t* ready;       ///< parts of each unit in the list that are converted
  UnitExtent* extents;        ///< of each unit
  std::uint32_t* unit_list;   ///< the units to compute
  int* exponents;             ///< of the largest weight of each packed column
  unsigned char* weights[kForms];
  unsigned char* units;  ///< converted units
};

/// The form and the scale of a converted unit.
struct UnitScale {
  int form, exponent;  // of its largest number
  __device__ __forceinline__ UnitScale(const UnitExtent* extent, bool needs_tf32) {
    const Magnitudes found{__ldcg(&extent->most), ~__ldcg(&extent->not_least), __ldcg(&extent->unusual)};
    form = needs_tf32 || found.needs_tf32() ? kFormTf32 : kFormF16;
    exponent = exponent_of(found.most);
  }
  __device__ __forceinline__ explicit UnitScale(std::uint32_t word)
      : form(static_cast<int>(word & 1U)), exponent(static_cast<int>(word >> 1) - 512) {}
  [[nodiscard]] __device__ __forceinline__ std::uint32_t packed() const {
    return static_cast<std::uint32_t>(form) | static_cast<std::uint32_t>(exponent + 512) << 1;
  }
};

/// What the warps of a block share, apart from the memory of the pipeline.
struct ByTileShared {
  alignas(16) float pieces[kByTileConverters / 32][2][kPieceRows * kPieceWidth];  // of the source, for each converter warp
  uint4 columns[kByTileConsumers];                                                // of each consumer's sums (OwnColumns)
  static constexpr int kSlots = 2;  // the ticket that a block works on, and one more: other blocks may wait for it
  uint4 tickets[kSlots];            // of the producer for the consumers
  unsigned long long full[kSlots], empty[kSlots];  // barriers
  std::uint32_t piece, most[kPackColumns], least[kPackColumns], unusual[kPackColumns];
};
static_assert(sizeof(ByTileShared) <= kByTileSharedBytes);

/// What all parts of the kernel are given.
struct ByTileCall {
  const TapGemm& gemm;
  const ByTileTiling& tiling;
  const ExactSource<>& exact;
  const ByTileArrays& arrays;
  ByTileShared& shared;
  bool all;  // whether all outputs are computed, else those that are marked

  /// Whether sums of a subtile and 128 positions are computed here.
  [[nodiscard]] __device__ __forceinline__ bool is_wanted(std::int64_t n, std::int64_t g, std::int64_t subtile,
                                                          std::int64_t block) const {
    if (!all) return is_marked(gemm, exact.wide, tiling.steps.usable, n, g, subtile, block);
    return subtile * tiling.steps.usable < gemm.columns && block < exact.wide.position_blocks;
  }
};

/// The consumers prepare together.
inline constexpr int kConsumerBarrier = 3;
__device__ __forceinline__ void meet_consumers() { ptx::named_barrier(kConsumerBarrier, kByTileConsumers); }

/// Whether a unit has something to compute.
__device__ __forceinline__ bool is_unit_wanted(const ByTileCall& call, const ByTileUnit& unit) {
  const std::int64_t blocks = call.tiling.unit_positions / kWidePositions;
  const std::int64_t subtiles = (call.gemm.columns + call.tiling.steps.usable - 1) / call.tiling.steps.usable;
  bool wanted = call.all;
  for (std::int64_t subtile = 0; subtile < subtiles && !wanted; ++subtile)
    for (std::int64_t block = 0; block < blocks && !wanted; ++block)
      wanted = call.is_wanted(unit.n, unit.g, subtile, unit.in_sample * blocks + block);
  return wanted;
}

/// Whether the place of a unit of the list is free: the unit before in it has been multiplied.
__device__ __forceinline__ bool has_place(const ByTileCall& call, std::uint32_t index) {
  const auto places = static_cast<std::uint32_t>(call.tiling.places);
  return index < places || ptx::load_acquire(call.arrays.multiplied + index - places) ==
                               static_cast<std::uint32_t>(call.tiling.steps.column_tiles);
}

}  // namespace polyphase::cuda::tensor_core
