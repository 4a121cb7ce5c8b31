#pragma once
// Plans and launches of the tensor-core kernels of Algorithm::depthwise for 16-bit types (band.cuh). For
// depthwise.cu.

#include <cuda_runtime.h>

#include <optional>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kBandThreads = 128;  // of a block, at most

/// A launch, made on the host. A chunk is 16 bytes: 8 elements.
struct BandPlan {
  int S, K, P;  // P: P_l
  int L_in, L_out;
  int depth;  // multiplications of 16 source elements a block of outputs
  int threads;
  int tiles;  // of a row
  int blocks;
  int chunks, swizzle;  // of the side that is read; for wgrad of y
  int stage_chunks;
  int shared_bytes;
  FastDivide by_tiles, by_channels, by_outputs;  // channels of the written side, M = C_out/G
  // wgrad: slices of units of (sample, tile) pairs, of one sample or all
  int slices, unit_tiles;
  FastDivide by_slices, by_unit_slices;
};

/// The launch, or nothing where other kernels have to do it. The rule: f16 or bf16, G = C_in, D = 1; dgrad and wgrad with
/// 7*S + K <= 57; forward with S = 1, 2 or 4 and (K - 2)/S <= 16; rows below 2^28 elements. `source` and `out`: what is read
/// and written, for wgrad y and x.
[[nodiscard]] std::optional<BandPlan> make_band_plan(const ConvProblem& problem, ConvDirection direction, const void* source,
                                                     const void* out, int sm_count);

/// depthwise::gather by a plan.
void band_gather(const ConvProblem& problem, ConvDirection direction, const BandPlan& plan, const void* source, const void* w,
                 const void* bias, void* out, const Epilogue& epilogue, cudaStream_t stream);

/// The partial sums of the weight gradient by a plan: partial (plan.slices, C_out, K).
void band_wgrad(const ConvProblem& problem, const BandPlan& plan, const void* x, const void* y, float* partial,
                cudaStream_t stream);

}  // namespace polyphase::cuda::depthwise
