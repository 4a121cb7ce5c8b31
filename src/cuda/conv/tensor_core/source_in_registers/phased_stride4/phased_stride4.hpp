#pragma once
// Forward of 16-bit types and of f32 at f32 accuracy with stride 4 or 8, the source in its original layout. Host side of
// kernel.cuh.

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// The tiling for a forward: f16 or bf16, stride 4 or 8, taps of kPhased4Patterns, rows of whole 16-byte vectors; f32 at f32
/// accuracy with the longer pattern. count == 0 if there is none.
[[nodiscard]] Phased4Tiling phased_stride4_tiling(const ConvProblem& problem, const DeviceProperties& gpu);

/// gather() of tensor_core.hpp for a problem with a phased_stride4_tiling(). `source` and `out` begin at multiples of 16 bytes.
void phased_stride4_gather(const Gather& call);

extern const KernelEntry kPhasedStride4;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
