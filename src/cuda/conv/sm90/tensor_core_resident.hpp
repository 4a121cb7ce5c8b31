#pragma once
// Forward and dgrad with few columns: the part of Algorithm::tensor_core whose weights stay in shared memory. Host side; the
// kernel stands in tensor_core_resident.cuh.

#include <cuda_runtime.h>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/weights.hpp"

namespace polyphase::cuda::tensor_core {

/// Whether the weights of 64 columns and two rings of the source fit the shared memory of `device`, whatever the alignment of
/// the arrays.
[[nodiscard]] bool resident_fits(const ConvProblem& problem, ConvDirection direction, Precision precision, int device);

/// gather() of tensor_core.hpp for a problem that fits, by tensor_core_narrow.hpp where that pays, by
/// tensor_core_resident_rows.hpp where that can.
void resident_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights,
                     const void* bias, void* out, const Epilogue& epilogue, Precision precision, int device,
                     cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
