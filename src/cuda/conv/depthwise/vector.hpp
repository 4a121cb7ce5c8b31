#pragma once
// Plans and launches of the vector kernels of Algorithm::depthwise (vector.cuh). For depthwise.cu.

#include <cuda_runtime.h>

#include <optional>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kVectorThreads = 128;  // of a block, at most

/// A launch, made on the host.
struct VectorPlan {
  int S, K, P;  // P: P_l
  int L_in, L_out;
  int threads;
  int tiles;  // of a row
  int blocks;
  int chunks;  // of 16 bytes that a tile of dgrad reads
  int tap_words, stage_words;
  int shared_bytes;
  FastDivide by_tiles, by_channels, by_outputs;  // channels of the written side, M = C_out/G
  // wgrad
  int slices, tiles_per_slice, items;  // items: (sample, tile) pairs
  FastDivide by_slices;
};

/// How the work is cut: as it was fastest on an H200 (docs/kernels/depthwise.md).
struct VectorTuning {
  int wgrad_blocks_per_sm = 32;  // slices
};

/// The launch, or nothing where the general kernels have to do it. The rule: f32, G = C_in, D = 1; S = 1 with K <= 12, S = 2
/// with K <= 15 or S = 4 with K <= 29; rows below 2^30 positions whose stages fit 48 KiB; for wgrad rows of all samples in one
/// phase (C_out*L_out a multiple of S). `vectors` is the side that is worked on in vectors: what is written, y for wgrad. Lines
/// of its rows begin tiles.
[[nodiscard]] std::optional<VectorPlan> make_vector_plan(const ConvProblem& problem, ConvDirection direction,
                                                         const void* vectors, int sm_count, const VectorTuning& tuning = {});

/// depthwise::gather by a plan.
void vector_gather(ConvDirection direction, const VectorPlan& plan, const void* source, const void* w, const void* bias,
                   void* out, const Epilogue& epilogue, cudaStream_t stream);

/// The partial sums of the weight gradient by a plan: partial (plan.slices, C_out, K).
void vector_wgrad(const VectorPlan& plan, const void* x, const void* y, float* partial, cudaStream_t stream);

}  // namespace polyphase::cuda::depthwise
