#pragma once
// The kernel of Algorithm::depthwise for taps that lie apart (dilated.cu), and its condition.

#include <cuda_runtime.h>

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/source_activation.hpp"

namespace polyphase::cuda::depthwise {

/// Whether dilated_gather() can compute the problem: f32, f16 or bf16, C_in = C_out = G, S = 1, D > 1, taps that reach at most
/// 4096 positions, fewer than 2^31 tiles.
[[nodiscard]] inline bool is_dilated(const ConvProblem& p, ConvDirection direction) {
  constexpr std::int64_t kMostReach = 4096, kMostTiles = std::int64_t{1} << 31;
  const std::int64_t length = direction == ConvDirection::forward ? p.L_out : p.L_in;
  return p.dtype != DType::f64 && p.G == p.C_in && p.C_out == p.C_in && p.S == 1 && p.D > 1 && p.K > 1 &&
         (p.K - 1) * p.D <= kMostReach && p.N * p.C_in * (length / 1024 + 1) < kMostTiles;
}

/// depthwise::gather() for a problem with is_dilated().
void dilated_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias,
                    void* out, const SourceSnake& snake, const Epilogue& epilogue, cudaStream_t stream);

}  // namespace polyphase::cuda::depthwise
