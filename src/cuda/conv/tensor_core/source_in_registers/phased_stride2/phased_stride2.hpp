#pragma once
// Forward of stride 2 with four taps, the source in its original layout. Host side of kernel.cuh.

#include "conv/algorithm.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"

namespace polyphase::cuda::tensor_core {

/// gather() of tensor_core.hpp for a problem with a best_phased2_tiling(): forward, stride 2, kernel size 4, 16-bit types or
/// f32 as Precision::tf32, rows of whole 16-byte vectors. `source` and `out` begin at multiples of 16 bytes.
void phased_stride2_gather(const Gather& call);

extern const KernelEntry kPhasedStride2;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
