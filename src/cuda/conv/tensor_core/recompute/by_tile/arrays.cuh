#pragma once
// The memory of a call of the by_tile kernel.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"
#include "cuda/conv/tensor_core/recompute/by_tile/work.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"

namespace polyphase::cuda::tensor_core {

/// Pointers into ByTileMemory.
struct ByTileArrays {
  ByTileWords* words;
  std::uint32_t* multiplied;  ///< tiles of each chunk that are multiplied
  std::uint32_t* ready;       ///< of each unit in the list: 0 until it is converted, then UnitScale
  std::uint32_t* unit_list;   ///< the units to compute
  int* exponents;             ///< of the largest weight of each packed column
  unsigned char* weights[kForms];
  unsigned char* units;  ///< chunks of converted units
};

/// The form and the scale of a converted unit, in a word that is not 0.
struct UnitScale {
  int form, exponent;  // of its largest number
  __device__ __forceinline__ static std::uint32_t packed(int form, int exponent) {
    return 1U | static_cast<std::uint32_t>(form) << 1 | static_cast<std::uint32_t>(exponent + 512) << 2;
  }
  __device__ __forceinline__ explicit UnitScale(std::uint32_t word)
      : form(static_cast<int>(word >> 1 & 1U)), exponent(static_cast<int>(word >> 2) - 512) {}
};

/// What the warps of a block share, apart from the memory of the pipeline.
struct ByTileShared {
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

/// Threads that prepare and convert together: the consumers.
inline constexpr int kConsumerBarrier = 3;
__device__ __forceinline__ void meet_consumers() { ptx::named_barrier(kConsumerBarrier, kByTileConsumers); }

}  // namespace polyphase::cuda::tensor_core
