#pragma once
// Forward and dgrad with few columns and short reductions: the part of Algorithm::tensor_core whose weights stay in registers.
// Host side; the kernel stands in kernel.cuh.

#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Whether an activation is applied where results are stored: everywhere but where each second output is a bias, which would
/// take 1 to 3 % longer without one.
[[nodiscard]] bool source_bulk_activates(const KernelProblem& asked, const DeviceProperties& gpu);

/// gather() of tensor_core.hpp for a problem that fits; an epilogue that its entry fuses.
void source_bulk_gather(const Gather& call);

extern const KernelEntry kSourceBulk;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
