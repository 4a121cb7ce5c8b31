#pragma once
// 16-bit forward and dgrad with few columns and few products, the source transposed by matrix loads. Host side of kernel.cuh.

#include "cuda/conv/tensor_core/pipeline/launch.hpp"

namespace polyphase::cuda::tensor_core {

/// gather() of tensor_core.hpp for a problem with a make_tma16_tiling(): f16 or bf16, one group, up to 64 output channels, a
/// multiple of 16 input channels, up to 320 products, stride 1, or forward of stride 2 with all taps in one phase, rows of even
/// length. `epilogue` is light and has at most one aux operand.
void source_tma_16bit_gather(const Gather& call);

extern const KernelEntry kSourceTma16bit;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
