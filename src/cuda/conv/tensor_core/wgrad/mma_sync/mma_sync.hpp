#pragma once
// The weight gradient on mma.sync, for GPUs without wgmma and for problems that the kernel on wgmma has no tile for. Host side
// of kernel.cuh.

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/mma_sync/tiling.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"

namespace polyphase::cuda::tensor_core {

/// Why mma_wgrad_as() cannot do the problem, or nothing.
[[nodiscard]] std::optional<std::string> mma_wgrad_problem(const ConvProblem& problem, Precision precision, int sm_count,
                                                           int shared_limit);

/// The products and the sum of the slices, with `tiling`. Operand: SplitF16, ScaledF16, F16 or Bf16.
template <class Operand>
void mma_wgrad(const WgradCall& call, const MmaWgradTiling& tiling);

/// mma_wgrad by type and precision, with the planned tiling or `tiling`. The caller scales f32 and recomputes suspect weights.
void mma_wgrad_as(const WgradCall& call, Precision precision);
void mma_wgrad_as(const WgradCall& call, Precision precision, const MmaWgradTiling& tiling);

}  // namespace polyphase::cuda::tensor_core
