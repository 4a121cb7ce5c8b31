#pragma once
// Algorithm::direct: the general FFMA kernels for any parameter, forward, dgrad and wgrad.

#include <cuda_runtime.h>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/packed_weights.hpp"

namespace polyphase::cuda::direct {

/// out = epilogue(direction(source, weights) + bias). Forward reads x and writes y; dgrad reads y and writes x. Arrays are
/// contiguous device arrays of problem.dtype; `bias` may be null. Asynchronous on `stream`. The weights are packed first; those
/// with a storage keep their packing (packed_weights.hpp). f32 problems with a long reduction and few outputs are split into
/// slices of gemm_k, which are added in order, so the result has the same bits every run. `tile` and `slices` force a row of
/// the tile table (tiling.hpp) and a slice count where they are possible (for tests and tuning).
void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights, const void* bias,
            void* out, const Epilogue& epilogue, int device, cudaStream_t stream, int tile = -1, int slices = 0);

/// The tile of gather() for problems of any batch and length with these channels and taps. With one slice it adds up every
/// output in one order.
[[nodiscard]] int tile_of_any_length(const ConvProblem& problem, ConvDirection direction, int device);

/// w = wgrad(x, y), overwritten. The slices depend on the shape alone and are added in order in f64.
void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::direct
