#pragma once
// Algorithm::direct: the general FFMA kernels for any parameter, forward, dgrad and wgrad. Source files direct_*.cu.

#include <cuda_runtime.h>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"

namespace polyphase::cuda::direct {

/// out = epilogue(direction(source, w) + bias): forward reads x and writes y, dgrad reads y and writes x. Contiguous device
/// arrays of problem.dtype; `bias` may be null. Asynchronous on `stream`; packs the weights into memory of the allocator first.
/// f32 problems with long reductions and few outputs are cut into slices of gemm_k, added in order: same bits every run.
/// `tile` and `slices` force a row of the tile table of tiling.hpp and a number of slices, where they are possible: for
/// tests and tuning.
void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const Epilogue& epilogue, int device, cudaStream_t stream, int tile = -1, int slices = 0);

/// w = wgrad(x, y), overwritten. Sums of fixed slices of the shape, added in order in f64.
void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::direct
