#pragma once
// Algorithm::gemm: cuBLAS and a column buffer, for any problem. The baseline that the other algorithms are measured against.

#include <cuda_runtime.h>

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"

namespace polyphase::cuda::gemm {

/// Why the problem cannot be computed: the columns of a single position exceed conv_workspace_limit().
[[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction);

/// Whether y is its own column buffer: the gradients of one tap are products alone.
[[nodiscard]] constexpr bool has_own_columns(const ConvProblem& problem, ConvDirection direction) {
  return direction != ConvDirection::forward && problem.K == 1 && problem.S == 1 && problem.P_l == 0 &&
         problem.L_out == problem.L_in;
}

/// out = epilogue(direction(source, w) + bias); dgrad ignores the epilogue, because cuBLAS stores its results. Forward reads x
/// and writes y; dgrad reads y and writes x. Arrays are contiguous device arrays of problem.dtype; `bias` may be null.
/// Asynchronous on `stream`; uses at most conv_workspace_limit() bytes of scratch memory.
void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const Epilogue& epilogue, Precision precision, int device, cudaStream_t stream);

/// w = wgrad(x, y), overwritten. 16-bit results are summed in f32 and rounded once.
void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Precision precision, int device,
           cudaStream_t stream);

}  // namespace polyphase::cuda::gemm
