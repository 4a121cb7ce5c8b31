#pragma once
// Forward and dgrad of stride 1 with few columns and short reductions. Host side; the kernel is in kernel.cuh.

#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Forward or dgrad of a problem that the kernel takes: out = epilogue(direction(source, w) + bias), `bias` may be null; an
/// epilogue that the entry fuses. On `stream`.
void source_tma_gather(const Gather& call);

extern const KernelEntry kSourceTma;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
