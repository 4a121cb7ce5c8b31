#pragma once
// Plans and launches of the vector kernels of Algorithm::depthwise (vector.cuh).

#include <cuda_runtime.h>

#include <optional>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kVectorThreads = 128;  // per block, at most

/// A launch, computed on the host.
struct VectorPlan {
  int S, K, P;  // P is P_l
  int L_in, L_out;
  int threads;
  int tiles;  // per row
  int blocks;
  int chunks;  // of 16 bytes, read by a tile of dgrad
  int tap_words, stage_words;
  int shared_bytes;
  FastDivide by_tiles, by_channels, by_outputs;  // channels of the written side, M = C_out/G
  // wgrad
  int slices, tiles_per_slice, items;  // items: (sample, tile) pairs
  FastDivide by_slices;
};

/// Tuning parameters: the fastest on an H200 (docs/kernels/depthwise.md).
struct VectorTuning {
  int wgrad_blocks_per_sm = 32;  // slices
};

/// The launch, or nothing if the general kernels must be used. Requirements: f32, G = C_in, D = 1; S = 1 with K <= 12, S = 2
/// with K <= 15, or S = 4 with K <= 29; rows shorter than 2^30 positions whose stages fit in 48 KiB; in wgrad the rows of all
/// samples begin in one phase (C_out*L_out is a multiple of S). `vectors` is the array that is processed in vectors: the
/// output, or y in wgrad. Tiles begin at its lines.
[[nodiscard]] std::optional<VectorPlan> make_vector_plan(const ConvProblem& problem, ConvDirection direction,
                                                         const void* vectors, int sm_count, const VectorTuning& tuning = {});

/// depthwise::gather with a plan.
void vector_gather(ConvDirection direction, const VectorPlan& plan, const void* source, const void* w, const void* bias,
                   void* out, const Epilogue& epilogue, cudaStream_t stream);

/// The partial sums of the weight gradient with a plan: partial (plan.slices, C_out, K).
void vector_wgrad(const VectorPlan& plan, const void* x, const void* y, float* partial, cudaStream_t stream);

}  // namespace polyphase::cuda::depthwise
