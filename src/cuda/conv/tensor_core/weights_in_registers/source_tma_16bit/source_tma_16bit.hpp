#pragma once
// 16-bit forward and dgrad with few columns and few products, the source turned by matrix loads. Host side of
// kernel.cuh.

#include "cuda/conv/tensor_core/pipeline/launch.hpp"

namespace polyphase::cuda::tensor_core {

/// gather() of tensor_core.hpp for a problem that make_tma16_tiling() cuts: f16 or bf16, one group, up to 64 channels out,
/// whole sixteens of them in, up to 320 products, stride 1, or forward of stride 2 with all taps in one phase, rows of even
/// length; `epilogue` is light and has one aux operand at most.
void source_tma_16bit_gather(const Gather& call);

extern const KernelEntry kSourceTma16bit;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
