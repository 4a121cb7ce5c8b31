#pragma once
// Forward and dgrad of any problem whose tile fits shared memory: each step of the source is converted while products run.
// Host side of kernel.cuh.

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/both_in_shared/streamed/tiling.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

struct StreamedTiling {
  Tiling tiling;
  TileShape tile;
};
/// How its kernel cuts the problem; steps.count == 0 where no tile fits.
[[nodiscard]] StreamedTiling streamed_tiling(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                             const DeviceProperties& gpu);

/// gather() of tensor_core.hpp for a problem that fits.
void streamed_gather(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
