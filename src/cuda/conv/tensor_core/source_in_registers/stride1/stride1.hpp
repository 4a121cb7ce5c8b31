#pragma once
// Forward and dgrad of stride and dilation 1 with up to 128 columns per block; the source is converted in registers. Host side
// of kernel.cuh.

#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// The tiling for the problem; count == 0 if there is no kernel for it, or its weights and rings of the source do not fit in
/// the shared memory of `gpu`. A 16-bit source must begin at a multiple of 4 bytes, and so must the output if its rows do not
/// begin at sectors.
[[nodiscard]] Stride1Tiling stride1_tiling(const KernelProblem& asked, const DeviceProperties& gpu);

/// gather() of tensor_core.hpp for a problem that fits.
void stride1_gather(const Gather& call);

extern const KernelEntry kStride1;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
