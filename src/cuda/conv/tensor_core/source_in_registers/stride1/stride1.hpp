#pragma once
// Forward and dgrad of stride and dilation 1 with up to 128 columns a block, the source converted in registers. Host side; the
// kernel stands in kernel.cuh.

#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// How the kernel for the problem cuts it; count == 0 where there is none, or its weights and rings of the source do not fit
/// the shared memory of `gpu`. The source of 16-bit types has to lie at a multiple of 4 bytes; so has the output where its rows
/// do not begin at sectors.
[[nodiscard]] Stride1Tiling stride1_tiling(const KernelProblem& asked, const DeviceProperties& gpu);

/// gather() of tensor_core.hpp for a problem that fits.
void stride1_gather(const Gather& call);

extern const KernelEntry kStride1;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
