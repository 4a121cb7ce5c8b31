#pragma once
// Forward of 16-bit types with stride 4 or 8, the source read as it lies. Host side of tensor_core_units.cuh.

#include <cuda_runtime.h>

#include <optional>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/weights.hpp"

namespace polyphase::cuda::tensor_core {

/// The estimated seconds of units_gather, weights packed, where there is a kernel for the problem on `device`: forward, f16 or
/// bf16, stride 4 or 8, a kernel whose taps are of kUnitPatterns, rows of whole vectors of 16 bytes.
[[nodiscard]] std::optional<double> units_seconds(const ConvProblem& problem, ConvDirection direction, int device);

/// Whether that is less than what the wide form takes, where that one pays: the problems that Algorithm::tensor_core does this
/// way.
[[nodiscard]] bool units_pay(const ConvProblem& problem, ConvDirection direction, Precision precision, int device);

/// gather() of tensor_core.hpp for a problem that units_seconds() knows. `source` and `out` lie at multiples of 16 bytes.
void units_gather(const ConvProblem& problem, const void* source, const Weights& weights, const void* bias, void* out,
                  const Epilogue& epilogue, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
