#pragma once
// Algorithm::gemm: cuBLAS and a column buffer, for any problem. The baseline that the other algorithms are measured against.

#include <cuda_runtime.h>

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"

namespace polyphase::cuda::gemm {

/// Why it cannot: not even one position's columns fit conv_workspace_limit().
[[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction);

/// out = epilogue(direction(source, w) + bias), of dgrad without the epilogue, which cuBLAS knows nothing of: forward reads x
/// and writes y, dgrad reads y and writes x. Contiguous device arrays of problem.dtype; `bias` may be null. Asynchronous on
/// `stream`; holds at most conv_workspace_limit() bytes of the allocator's memory.
void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const Epilogue& epilogue, Precision precision, int device, cudaStream_t stream);

/// w = wgrad(x, y), overwritten. Halves are summed in f32 and rounded once.
void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Precision precision, int device,
           cudaStream_t stream);

}  // namespace polyphase::cuda::gemm
