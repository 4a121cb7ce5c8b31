#pragma once
// Forward and dgrad on wgmma for problems whose source is read by several tiles of columns. Host side of kernel.cuh.

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/tiling.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// What a convolution is done with: one of preconverted_shapes(), and how it cuts the problem.
struct PreconvertedPlan {
  int shape = 0;
  std::int64_t samples = 0;   ///< done at a time, for the sake of memory
  PreconvertedTiling tiling;  ///< of so many
  bool is_mma = false;        ///< by mma.sync: shape is one of mma_shapes()
};

/// A plan and its estimated seconds, all launches but that of packing the weights.
struct PreconvertedCandidate {
  PreconvertedPlan plan;
  double seconds;
};
/// Of every kernel there is and every number of slices, where they fit.
[[nodiscard]] std::vector<PreconvertedCandidate> preconverted_candidates(const ConvProblem& problem, ConvDirection direction,
                                                                         Precision precision, int sm_count, int shared_limit);

/// Of these the one estimated to be fastest. Nothing where none fits, or where the source of one sample as
/// operand would take more than conv_workspace_limit(). A pure function of its arguments and that limit.
[[nodiscard]] std::optional<PreconvertedPlan> make_preconverted_plan(const ConvProblem& problem, ConvDirection direction,
                                                                     Precision precision, int sm_count, int shared_limit);

/// The plan for a problem on `device`: make_preconverted_plan()'s, on a GPU that uses_mma() make_mma_plan()'s. Remembered.
[[nodiscard]] std::optional<PreconvertedPlan> preconverted_plan(const ConvProblem& problem, ConvDirection direction,
                                                                Precision precision, int device);

/// The estimated seconds of preconverted_gather by make_preconverted_plan()'s plan, weights packed. Nothing where there is
/// none.
[[nodiscard]] std::optional<double> preconverted_cost(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                      const DeviceProperties& gpu);

/// All that preconverted_pack_weights' result depends on but the weights. Mostly the same for any batch and length, so that the
/// packed weights of a layer serve all of them.
[[nodiscard]] PackingKey preconverted_weight_key(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                 const PreconvertedPlan& plan);

/// Bytes of the weights as operand.
[[nodiscard]] std::int64_t preconverted_weight_bytes(const PreconvertedPlan& plan);

/// Weights `w` as operand, to `packed`. On `stream`.
void preconverted_pack_weights(const ConvProblem& problem, ConvDirection direction, Precision precision,
                               const PreconvertedPlan& plan, const void* w, void* packed, cudaStream_t stream);

/// out = source convolved with the weights, plus bias unless null, through `epilogue`. `packed` comes from
/// preconverted_pack_weights with the same plan and w. On `stream`.
void preconverted_gather(const ConvProblem& problem, ConvDirection direction, Precision precision, const PreconvertedPlan& plan,
                         const void* source, const void* w, const void* packed, const void* bias, void* out,
                         const Epilogue& epilogue, int device, cudaStream_t stream);

extern const KernelEntry kPreconverted;  // entry.cpp

}  // namespace polyphase::cuda::tensor_core
