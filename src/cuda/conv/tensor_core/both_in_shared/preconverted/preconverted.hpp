#pragma once
// Forward and dgrad on wgmma for problems whose source is read by several column tiles. Host side of kernel.cuh.

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/pipeline/preconverted/tiling.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// How a convolution is computed: one of preconverted_shapes(), and its tiling.
struct PreconvertedPlan {
  int shape = 0;
  std::int64_t samples = 0;   ///< samples per pass, limited by scratch memory
  PreconvertedTiling tiling;  ///< for one pass
  bool is_mma = false;        ///< on mma.sync: shape is one of mma_shapes()
};

/// A plan and its estimated seconds, for all launches except packing the weights.
struct PreconvertedCandidate {
  PreconvertedPlan plan;
  double seconds;
};
/// Candidates for every kernel instance and every number of slices that fit.
[[nodiscard]] std::vector<PreconvertedCandidate> preconverted_candidates(const ConvProblem& problem, ConvDirection direction,
                                                                         Precision precision, int sm_count, int shared_limit);

/// The candidate with the shortest estimated time. Nothing if none fits, or if the source operand of one sample would exceed
/// conv_workspace_limit(). A pure function of its arguments and that limit.
[[nodiscard]] std::optional<PreconvertedPlan> make_preconverted_plan(const ConvProblem& problem, ConvDirection direction,
                                                                     Precision precision, int sm_count, int shared_limit);

/// The plan for a problem on `device`, cached: make_preconverted_plan()'s, or make_mma_plan()'s on a GPU with uses_mma().
[[nodiscard]] std::optional<PreconvertedPlan> preconverted_plan(const ConvProblem& problem, ConvDirection direction,
                                                                Precision precision, int device);

/// The estimated seconds of preconverted_gather with make_preconverted_plan()'s plan and packed weights. Nothing if there is no
/// plan.
[[nodiscard]] std::optional<double> preconverted_cost(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                      const DeviceProperties& gpu);

/// Everything that the packing depends on except the weights. Usually the same for any batch and length, so that the packed
/// weights of a layer serve all of them.
[[nodiscard]] PackingKey preconverted_weight_key(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                 const PreconvertedPlan& plan);

/// Bytes of the packed weights.
[[nodiscard]] std::int64_t preconverted_weight_bytes(const PreconvertedPlan& plan);

/// Packs the weights `w` to `packed`. On `stream`.
void preconverted_pack_weights(const ConvProblem& problem, ConvDirection direction, Precision precision,
                               const PreconvertedPlan& plan, const void* w, void* packed, cudaStream_t stream);

/// out = epilogue(direction(source, weights) + bias), where `activation` is what is read of the source
/// `bias` may be null. `packed` comes from preconverted_pack_weights with
/// the same plan and w. On `stream`.
void preconverted_gather(const ConvProblem& problem, ConvDirection direction, Precision precision, const PreconvertedPlan& plan,
                         const void* source, const SourceActivation& activation, const void* w, const void* packed,
                         const void* bias, void* out, const Epilogue& epilogue, int device, cudaStream_t stream);

extern const KernelEntry kPreconverted;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
