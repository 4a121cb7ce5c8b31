#pragma once
// Shared parts of the launches of kernel.cuh and f32_kernel.cuh. Host only.

#include <cuda.h>
#include <cuda_runtime.h>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased4Alignment = 128;  // of shared memory

/// Everything that packed weights depend on except the weights.
[[nodiscard]] inline PackingKey unit_weight_key(const ConvProblem& problem, const Phased4Tiling& tiling) {
  constexpr std::int64_t kPhased4Packing = -6;  // not a ConvDirection, which the preconverted kernel's keys have here
  return {static_cast<std::int64_t>(Algorithm::tensor_core),
          kPhased4Packing,
          static_cast<std::int64_t>(problem.dtype),
          problem.C_in,
          problem.C_out,
          problem.G,
          problem.S,
          problem.K,
          problem.P_l,
          tiling.pattern};
}

/// The source as boxes of `rows` rows and `width` numbers, one per stage.
[[nodiscard]] inline CUtensorMap unit_source_map(const ConvProblem& problem, const void* source, int rows, int width) {
  const MapRows rows_of{source, problem.N * problem.C_in, problem.L_in, static_cast<int>(size_of(problem.dtype))};
  return encode_tensor_map(class_map_of(rows_of, 0, 1, 16, width, rows));
}

/// phased_stride4_gather() for f32 with stride 4 and K = 25, compiled separately.
void phased_stride4_gather_f32(const Gather& call, const Phased4Tiling& tiling);

}  // namespace polyphase::cuda::tensor_core
