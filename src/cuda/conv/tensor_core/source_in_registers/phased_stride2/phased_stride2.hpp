#pragma once
// Forward of stride 2 with four taps, the source read as it lies. Host side of kernel.cuh.

#include "conv/algorithm.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"

namespace polyphase::cuda::tensor_core {

/// gather() of tensor_core.hpp for a problem that best_phased2_tiling() cuts: forward, stride 2, kernel size 4, of 16-bit types
/// or f32 as Precision::tf32, rows of whole vectors of 16 bytes. `source` and `out` lie at multiples of 16 bytes.
void phased_stride2_gather(const Gather& call);

extern const KernelEntry kPhasedStride2;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
