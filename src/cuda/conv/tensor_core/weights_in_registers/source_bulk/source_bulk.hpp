#pragma once
// Forward and dgrad with few columns and short reductions: the part of Algorithm::tensor_core whose weights stay in registers.
// Host side; the kernel stands in kernel.cuh.

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"

namespace polyphase::cuda::tensor_core {

/// Whether ReLU and LeakyReLU are applied where the results are stored: everywhere but where each second output is a bias,
/// which would take 1 to 3 % longer without an activation.
[[nodiscard]] bool source_bulk_activates(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                         const void* out, int device);

/// gather() of tensor_core.hpp for a problem that fits; of epilogues none or, as source_bulk_activates() says, ReLU or
/// LeakyReLU alone.
void source_bulk_gather(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
