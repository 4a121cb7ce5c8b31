#pragma once
// Forward and dgrad with few columns: the part of Algorithm::tensor_core whose weights stay in shared memory. Host side; the
// kernel stands in kernel.cuh.

#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// How the kernel for the problem cuts it; count == 0 where the weights of 64 columns and two rings of the source do not fit
/// the shared memory of `gpu`.
[[nodiscard]] StationaryTiling stationary_tiling(const KernelProblem& asked, const DeviceProperties& gpu);

/// gather() of tensor_core.hpp for a problem that fits.
void stationary_gather(const Gather& call);

extern const KernelEntry kStationary;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
