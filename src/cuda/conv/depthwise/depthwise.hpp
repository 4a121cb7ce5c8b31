#pragma once
// Algorithm::depthwise: G = C_in with any number of outputs per channel. Limited by memory.

#include <cuda_runtime.h>

#include <optional>
#include <string>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/source_activation.hpp"

namespace polyphase::cuda::depthwise {

/// Why the kernels cannot compute this problem: it is not depthwise, or a tile does not fit in shared memory.
[[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, int device);

/// Whether gather() applies Snake to the source as it reads it.
[[nodiscard]] bool activates_snake(const ConvProblem& problem, ConvDirection direction);

/// out = epilogue(direction(snake(source), w) + bias), `snake` only with activates_snake(). Forward reads x and writes y; dgrad
/// reads y and writes x. Arrays are contiguous device arrays of problem.dtype; `bias` may be null. Asynchronous on `stream`;
/// uses no scratch memory.
void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const SourceSnake& snake, const Epilogue& epilogue, int device, cudaStream_t stream);

/// w = wgrad(x, y), overwritten. The slices depend on the shape alone and are added in order in f64.
void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::depthwise
