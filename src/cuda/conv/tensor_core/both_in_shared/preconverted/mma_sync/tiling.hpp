#pragma once
// Tilings of the mma.sync kernel (kernel.cuh). Host arithmetic only.

#include <span>

#include "cuda/conv/tensor_core/pipeline/preconverted/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// The warps of a block in one kernel instance: each has 64 columns and mma_positions_of_warp() positions.
struct MmaShape {
  int column_warps, position_warps;
  int blocks_per_sm;
};
constexpr int mma_positions_of_warp(int parts) { return parts == 2 ? 32 : 64; }

/// The kernel instances for operands of `parts` parts.
[[nodiscard]] std::span<const MmaShape> mma_shapes(int parts);

/// A tiling with at most `slices` slices, like make_preconverted_tiling but with all shared memory for stages. count == 0 if
/// nothing fits.
[[nodiscard]] PreconvertedTiling make_mma_tiling(const TapGemm& gemm, const MmaShape& shape, int parts, int element_bytes,
                                                 int slices, int sm_count, int shared_limit);

/// How many of the warps along positions have their sums in shared memory together when a block stores them.
[[nodiscard]] int mma_warps_of_pass(const TapGemm& gemm, const PreconvertedTiling& tiling, const MmaShape& shape,
                                    int element_bytes);

/// The estimated cycles of a launch.
[[nodiscard]] double mma_cycles(const TapGemm& gemm, const PreconvertedTiling& tiling, const MmaShape& shape, int sm_count);

}  // namespace polyphase::cuda::tensor_core
