#pragma once
// Forward and dgrad with few columns and short reductions: the part of Algorithm::tensor_core whose weights stay in registers.
// Host side; the kernel stands in tensor_core_narrow.cuh.

#include <cuda_runtime.h>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/weights.hpp"

namespace polyphase::cuda::tensor_core {

/// gather() of tensor_core.hpp, without an epilogue, for a problem that fits.
void narrow_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights,
                   const void* bias, void* out, Precision precision, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
