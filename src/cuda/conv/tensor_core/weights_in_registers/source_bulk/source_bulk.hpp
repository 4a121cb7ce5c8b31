#pragma once
// Forward and dgrad with few columns and short reductions: the kernel of Algorithm::tensor_core whose weights stay in
// registers. Host side of kernel.cuh.

#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Whether the stores apply an activation: always, unless every second output is a bias, where it would cost 1 to 3 % even if
/// unused.
[[nodiscard]] bool source_bulk_activates(const KernelProblem& asked, const DeviceProperties& gpu);

/// gather() of tensor_core.hpp for a problem that fits and an epilogue that the entry fuses.
void source_bulk_gather(const Gather& call);

extern const KernelEntry kSourceBulk;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
