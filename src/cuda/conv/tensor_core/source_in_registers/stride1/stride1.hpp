#pragma once
// Forward and dgrad of stride and dilation 1 with up to 128 columns a block, the source converted in registers. Host side; the
// kernel stands in kernel.cuh.

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// How the kernel for the problem cuts it; count == 0 where there is none, or its weights and rings of the source do not fit
/// the shared memory of `gpu`. `source`: of 16-bit types it has to lie at a multiple of 4 bytes; so has `out` where its rows do
/// not begin at sectors.
[[nodiscard]] Stride1Tiling stride1_tiling(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                           const void* source, const void* out, const DeviceProperties& gpu);

/// Whether a problem that fits is finished with `epilogue` where it is stored: ReLU and LeakyReLU of f32, and of 16-bit types
/// whose rows do not begin at sectors; a residual and a derivative where pairs of outputs are stored, at their places, as
/// one.
[[nodiscard]] bool stride1_fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue,
                                 Precision precision, int device, const void* source, const void* out);

/// gather() of tensor_core.hpp for a problem that fits.
void stride1_gather(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
