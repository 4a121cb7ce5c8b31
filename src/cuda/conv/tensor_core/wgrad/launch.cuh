#pragma once
// Launches the tensor-core weight gradient of one operand type. Each type's kernels are compiled in a separate file.

#include "cuda/conv/tensor_core/wgrad/rows_kernel.cuh"
#include "cuda/conv/tensor_core/wgrad/sums.cuh"
#include "cuda/conv/tensor_core/wgrad/tiles.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

template <class Operand>
auto wgrad_rows_kernel_of(WgradShape shape) {
  if constexpr (Operand::kParts == 1) {
    if (shape.columns == 128 && shape.shifts == 3) return wgrad_rows_kernel<Operand, 128, 3>;
    if (shape.columns == 128 && shape.shifts == 2) return wgrad_rows_kernel<Operand, 128, 2>;
  }
  if constexpr (Operand::kWide) {
    if (shape.columns == 32) return wgrad_rows_kernel<Operand, 32, 4>;
    return shape.shifts == 1 ? wgrad_rows_kernel<Operand, 64, 1> : wgrad_rows_kernel<Operand, 64, 3>;
  } else {
    if (shape.columns == 128) return wgrad_rows_kernel<Operand, 128, 1>;
    if (shape.columns == 64 && shape.shifts == 1) return wgrad_rows_kernel<Operand, 64, 1>;
    if (shape.columns == 64) return shape.shifts == 2 ? wgrad_rows_kernel<Operand, 64, 2> : wgrad_rows_kernel<Operand, 64, 3>;
    return shape.shifts == 3 ? wgrad_rows_kernel<Operand, 32, 3> : wgrad_rows_kernel<Operand, 32, 5>;
  }
}

/// Threads of a weight in the sums of the wide kernel.
[[nodiscard]] inline int wide_lanes(std::int64_t slices) { return slices < 16 ? 1 : std::min(slice_lanes(slices), 16); }

/// Few where there is little to add, because mostly they have nothing to do.
[[nodiscard]] inline std::int64_t wide_sum_blocks(const WideSums& sums, int threads, int sm_count) {
  constexpr int kMostRounds = 16;
  const std::int64_t blocks = sums.weights * sums.lanes / (std::int64_t{threads} * kMostRounds);
  return std::clamp<std::int64_t>(blocks, 8, sm_count);
}

template <class Operand>
void launch_wgrad(const WgradCall& call) {
  using T = typename Operand::Source;
  const ConvProblem& problem = call.problem;
  const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
  const WgradTiling& tiling = Operand::kWide ? *call.wide_tiling : *call.tiling;
  // The sums of a single slice are the weights.
  const bool is_single = sizeof(T) == sizeof(float) && tiling.partial_slices == 1;
  const Buffer buffer(is_single ? 0 : static_cast<std::size_t>(tiling.partial_slices * weights) * sizeof(float), call.device);
  auto* partial = is_single ? static_cast<float*>(call.w) : buffer.as<float>();
  auto blocks = static_cast<unsigned>(tiling.jobs * tiling.slices);
  WgradRest<Operand> rest;
  if constexpr (Operand::kWide) {
    rest = {problem,
            call.wide,
            static_cast<const float*>(call.x),
            static_cast<const float*>(call.y),
            partial,
            static_cast<float*>(call.w),
            weights,
            tiling.partial_slices,
            wide_lanes(tiling.partial_slices)};
    blocks += static_cast<unsigned>(wide_sum_blocks(rest, tiling.row_threads, properties(call.device).sm_count));
  } else {
    rest = call.wide.by_rows ? call.wide.any : nullptr;
  }
  auto* kernel = wgrad_rows_kernel_of<Operand>(tiling.shape);
  allow_shared_memory(kernel, tiling.shared_bytes);
  launch_behind(kernel, blocks, static_cast<unsigned>(tiling.row_threads), static_cast<std::size_t>(tiling.shared_bytes),
                call.stream, *call.source.problem, tiling,
                make_wgrad_maps(tiling, *call.source.problem, call.source.x, call.source.y, sizeof(T)), partial, call.scales,
                rest);
  check_launch("conv tensor_core: wgrad");
  if constexpr (!Operand::kWide) add_wgrad_slices<T>(call, make_wgrad_tiles(problem, tiling), partial, tiling.partial_slices);
}

}  // namespace polyphase::cuda::tensor_core
