#pragma once
// One output of forward or dgrad by FFMA, in the place of a sum that operands may have got wrong.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"

namespace polyphase::cuda::tensor_core {

/// Summed by a warp: its lanes take neighbouring rows of each plane and window.
template <class T>
__device__ __forceinline__ float exact_sum(const TapGemm& gemm, const ConvProblem& problem, bool is_forward, std::int64_t n,
                                           std::int64_t g, std::int64_t column, std::int64_t position,
                                           const T* __restrict__ source, const T* __restrict__ w) {
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  const std::int64_t channel = column / gemm.classes, a = column - channel * gemm.classes;
  float sum = 0;
  for (std::int64_t plane = 0; plane < gemm.planes; ++plane) {
    for (std::int64_t window = 0; window < gemm.taps; ++window) {
      const std::int64_t k = (is_forward ? a : plane) + (is_forward ? gemm.taps - 1 - window : window) * gemm.phase_classes;
      const std::int64_t e =
          gemm.source_stride * (position + window * gemm.tap_step) + plane * gemm.source_plane_step + gemm.source_origin;
      if (k >= problem.K || e < 0 || e >= gemm.source_length) continue;
      const T* from = source + (n * gemm.G + g) * gemm.rows * gemm.source_length + e;
#pragma unroll 4
      for (std::int64_t row = threadIdx.x % 32; row < gemm.rows; row += 32) {
        const std::int64_t ci = g * in_per_group + (is_forward ? row : column);
        const std::int64_t co = is_forward ? channel : row;
        sum = fmaf(static_cast<float>(from[row * gemm.source_length]),
                   static_cast<float>(w[(ci * out_per_group + co) * problem.K + k]), sum);
      }
    }
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

/// Summed by each lane for itself.
__device__ __forceinline__ float own_exact_sum(const TapGemm& gemm, const ExactSource<>& exact, std::int64_t n, std::int64_t g,
                                               std::int64_t column, std::int64_t position) {
  const ConvProblem& problem = exact.problem;
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  const std::int64_t channel = column / gemm.classes, a = column - channel * gemm.classes;
  float sum = 0;
  for (std::int64_t plane = 0; plane < gemm.planes; ++plane) {
    for (std::int64_t window = 0; window < gemm.taps; ++window) {
      const std::int64_t k =
          (exact.is_forward ? a : plane) + (exact.is_forward ? gemm.taps - 1 - window : window) * gemm.phase_classes;
      const std::int64_t e =
          gemm.source_stride * (position + window * gemm.tap_step) + plane * gemm.source_plane_step + gemm.source_origin;
      if (k >= problem.K || e < 0 || e >= gemm.source_length) continue;
      const std::int64_t ci = g * in_per_group + (exact.is_forward ? 0 : column), co = exact.is_forward ? channel : 0;
      const float* from = exact.source + (n * gemm.G + g) * gemm.rows * gemm.source_length + e;
      const float* w = exact.w + (ci * out_per_group + co) * problem.K + k;
      const std::int64_t w_step = (exact.is_forward ? out_per_group : 1) * problem.K;
#pragma unroll 8
      for (std::int64_t row = 0; row < gemm.rows; ++row) sum = fmaf(from[row * gemm.source_length], w[row * w_step], sum);
    }
  }
  count_recomputed();
  return sum;
}

}  // namespace polyphase::cuda::tensor_core
