#pragma once
// One output of forward or dgrad by FFMA, in the place of a sum that operands may have got wrong.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"

namespace polyphase::cuda::tensor_core {

/// Summed by a warp: its lanes take neighbouring rows of a plane and window, and many loads are in flight together.
template <class T>
__device__ __forceinline__ float exact_sum(const TapGemm& gemm, const ConvProblem& problem, bool is_forward, std::int64_t n,
                                           std::int64_t g, std::int64_t column, std::int64_t position,
                                           const T* __restrict__ source, const T* __restrict__ w) {
  constexpr int kLoads = 8;
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  const std::int64_t channel = column / gemm.classes, a = column - channel * gemm.classes;
  const std::int64_t row_step = (is_forward ? out_per_group : 1) * problem.K;
  const T* const own_w =
      w + ((g * in_per_group + (is_forward ? 0 : column)) * out_per_group + (is_forward ? channel : 0)) * problem.K;
  const T* const own_source = source + (n * gemm.G + g) * gemm.rows * gemm.source_length;
  const auto lane = static_cast<int>(threadIdx.x % 32), row_blocks = static_cast<int>((gemm.rows + 31) / 32);
  const auto taps = static_cast<int>(gemm.taps), steps = static_cast<int>(gemm.planes) * taps * row_blocks;
  float sum = 0;
#pragma unroll 1
  for (int first = 0; first < steps; first += kLoads) {
    float x[kLoads], y[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int tap = (first + i) / row_blocks, row = (first + i - tap * row_blocks) * 32 + lane;
      const int plane = tap / taps, window = tap - plane * taps;
      const std::int64_t k = (is_forward ? a : plane) + (is_forward ? taps - 1 - window : window) * gemm.phase_classes;
      const std::int64_t e =
          gemm.source_stride * (position + window * gemm.tap_step) + plane * gemm.source_plane_step + gemm.source_origin;
      const bool exists = first + i < steps && row < gemm.rows && k < problem.K && e >= 0 && e < gemm.source_length;
      x[i] = exists ? static_cast<float>(gemm.activated(own_source[row * gemm.source_length + e])) : 0.0F;
      y[i] = exists ? static_cast<float>(own_w[row * row_step + k]) : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) sum = fmaf(x[i], y[i], sum);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, distance);
  if (threadIdx.x % 32 == 0) count_recomputed();
  return sum;
}

template <class T>
__device__ __forceinline__ float exact_sum(const TapGemm& gemm, const ExactSource<T>& exact, bool is_forward, std::int64_t n,
                                           std::int64_t g, std::int64_t column, std::int64_t position) {
  return exact_sum(gemm, exact.problem, is_forward, n, g, column, position, exact.source, exact.w);
}

}  // namespace polyphase::cuda::tensor_core
