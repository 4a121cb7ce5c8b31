#pragma once
// Plans and launches of the tensor-core kernels of Algorithm::depthwise for 16-bit types (band.cuh).

#include <cuda_runtime.h>

#include <optional>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kBandThreads = 128;  // per block, at most

/// A launch, computed on the host. A chunk is 16 bytes: 8 elements.
struct BandPlan {
  int S, K, P;  // P is P_l
  int L_in, L_out;
  int depth;  // multiplications of 16 source elements per block of outputs
  int threads;
  int tiles;  // per row
  int blocks;
  int chunks, swizzle;  // of the side that is read; in wgrad of y
  int stage_chunks;
  int shared_bytes;
  FastDivide by_tiles, by_channels, by_outputs;  // channels of the written side, M = C_out/G
  // wgrad: slices of units of (sample, tile) pairs, of one sample or all
  int slices, unit_tiles;
  FastDivide by_slices, by_unit_slices;
};

/// The launch, or nothing if other kernels must be used. Requirements: f16 or bf16, G = C_in, D = 1; dgrad and wgrad: 7*S + K
/// <= 57; forward: S = 1, 2 or 4 and (K - 2)/S <= 16; rows shorter than 2^28 elements. `source` and `out` are the arrays read
/// and written; in wgrad y and x.
[[nodiscard]] std::optional<BandPlan> make_band_plan(const ConvProblem& problem, ConvDirection direction, const void* source,
                                                     const void* out, int sm_count);

/// depthwise::gather with a plan.
void band_gather(const ConvProblem& problem, ConvDirection direction, const BandPlan& plan, const void* source, const void* w,
                 const void* bias, void* out, const Epilogue& epilogue, cudaStream_t stream);

/// The partial sums of the weight gradient with a plan: partial (plan.slices, C_out, K).
void band_wgrad(const ConvProblem& problem, const BandPlan& plan, const void* x, const void* y, float* partial,
                cudaStream_t stream);

}  // namespace polyphase::cuda::depthwise
