#pragma once
// Forward of stride 2 with four taps, the source read as it lies. Host side of tensor_core_phases.cuh.

#include <cuda_runtime.h>

#include <optional>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/weights.hpp"

namespace polyphase::cuda::tensor_core {

/// Whether there is a kernel for the problem whose weights fit the shared memory of `device`: forward, stride 2, kernel size 4,
/// of 16-bit types or Precision::tf32, rows of whole vectors of 16 bytes.
[[nodiscard]] bool phases_fit(const ConvProblem& problem, ConvDirection direction, Precision precision, int device);

/// The estimated seconds of phases_gather, weights packed, where the problem fits.
[[nodiscard]] std::optional<double> phases_seconds(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                   int device);

/// gather() of tensor_core.hpp for a problem that fits, f32 as Precision::tf32. `source` and `out` lie at multiples of 16
/// bytes.
void phases_gather(const ConvProblem& problem, const void* source, const Weights& weights, const void* bias, void* out,
                   const Epilogue& epilogue, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
