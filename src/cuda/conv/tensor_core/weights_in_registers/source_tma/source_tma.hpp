#pragma once
// Forward and dgrad of stride 1 with few columns and short reductions. Host side; the kernel is in kernel.cuh.

#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Whether source_tma_gather() takes this epilogue too: one that is light and whose aux operands lie multiples of 16
/// bytes from them; a residual and a derivative at once where rows are whole sectors and weights leave registers.
[[nodiscard]] bool source_tma_fuses(const KernelProblem& asked, const Epilogue& epilogue, const DeviceProperties& gpu);

/// forward or dgrad of a problem that it takes: out = source convolved with w, plus bias unless null, through an epilogue that
/// source_tma_fuses() takes. On `stream`.
void source_tma_gather(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
