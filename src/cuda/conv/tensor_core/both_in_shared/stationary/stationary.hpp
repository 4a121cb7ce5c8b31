#pragma once
// Forward and dgrad with few columns: the kernel of Algorithm::tensor_core whose weights stay in shared memory. Host side of
// kernel.cuh.

#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// The tiling for the problem; count == 0 if the weights of 64 columns and two rings of the source do not fit in the shared
/// memory of `gpu`.
[[nodiscard]] StationaryTiling stationary_tiling(const KernelProblem& asked, const DeviceProperties& gpu);

/// gather() of tensor_core.hpp for a problem that fits.
void stationary_gather(const Gather& call);

extern const KernelEntry kStationary;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
