#pragma once
// Many outputs of forward or dgrad at once, in the place of sums that operands may have got wrong: on the tensor cores, with
// the range of f32.
//
// v = high + low + e in two tf32 numbers, |e| <= 2^-23 |v|. high*high is summed apart from high*low + low*high, over at most
// kChain steps of 8 products in the tensor cores' own adder, which cuts off.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/ptx/mma.cuh"

namespace polyphase::cuda::tensor_core {

/// f32 as two tf32 numbers; infinities and NaN make `low` NaN.
struct Tf32Parts {
  std::uint32_t high, low;
  __device__ __forceinline__ explicit Tf32Parts(float v) {
    constexpr std::uint32_t kHalfUnit = 0x1000, kMask = 0xffffe000U;
    high = (__float_as_uint(v) + kHalfUnit) & kMask;
    low = __float_as_uint(v - __uint_as_float(high)) + kHalfUnit;
  }
};

/// An output position, or one that does not exist (n < 0).
struct SumPosition {
  std::int64_t n, position;
};

/// Sums of 16 * kM columns and 8 * kN positions of a group, by a warp. A lane has the sums of columns 16 * m + lane/4 (+ 8 for
/// the last two) and positions 8 * n + lane%4 * 2 + {0, 1}.
template <int kM, int kN>
struct Tf32Sums {
  std::int64_t columns[2 * kM];  // the lane's; negative where there is none
  SumPosition positions[kN];     // 8 * n + lane/4
  float of[kM][kN][4];
};

/// Adds sums of the tensor cores to `to` and begins them anew.
template <int kM, int kN>
__device__ __forceinline__ void take_tf32(float (&to)[kM][kN][4], float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[m][j][i] += sums[m][j][i];
        sums[m][j][i] = 0.0F;
      }
    }
  }
}

/// Fills block->of. Not inlined: it has registers of its own.
template <int kM, int kN>
__device__ __noinline__ void sum_tf32(const TapGemm& gemm, const ExactSource<>& exact, std::int64_t g,
                                      Tf32Sums<kM, kN>* block) {
  constexpr int kChain = 8;
  std::int64_t columns[2 * kM];
  SumPosition positions[kN];
#pragma unroll
  for (int c = 0; c < 2 * kM; ++c) columns[c] = block->columns[c];
#pragma unroll
  for (int j = 0; j < kN; ++j) positions[j] = block->positions[j];
  const ConvProblem& problem = exact.problem;
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  const std::int64_t row_step = (exact.is_forward ? out_per_group : 1) * problem.K, length = gemm.source_length;
  const auto q = static_cast<int>(threadIdx.x % 4), rows = static_cast<int>(gemm.rows), planes = static_cast<int>(gemm.planes),
             taps = static_cast<int>(gemm.taps);
  float total[kM][kN][4] = {}, big[kM][kN][4] = {}, small[kM][kN][4] = {};
  int steps = 0;
#pragma unroll 1
  for (int plane = 0; plane < planes; ++plane) {
#pragma unroll 1
    for (int window = 0; window < taps; ++window) {
      const float* weights[2 * kM];
#pragma unroll
      for (int c = 0; c < 2 * kM; ++c) {
        const std::int64_t channel = columns[c] / gemm.classes, a = columns[c] - channel * gemm.classes;
        const std::int64_t k =
            (exact.is_forward ? a : plane) + (exact.is_forward ? taps - 1 - window : window) * gemm.phase_classes;
        const std::int64_t ci = g * in_per_group + (exact.is_forward ? 0 : columns[c]), co = exact.is_forward ? channel : 0;
        const bool exists = columns[c] >= 0 && k < problem.K;
        weights[c] = exists ? exact.w + (ci * out_per_group + co) * problem.K + k + q * row_step : nullptr;
      }
      const float* source[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const std::int64_t e = gemm.source_stride * (positions[j].position + window * gemm.tap_step) +
                               plane * gemm.source_plane_step + gemm.source_origin;
        const bool exists = positions[j].n >= 0 && e >= 0 && e < length;
        source[j] = exists ? exact.source + ((positions[j].n * gemm.G + g) * rows + q) * length + e : nullptr;
      }
      // A step's numbers are on their way while those of the step before are multiplied.
      float a[2 * kM][2], b[kN][2];
      const auto load = [&](int row) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const bool has_row = row + q + 4 * half < rows;
#pragma unroll
          for (int c = 0; c < 2 * kM; ++c)
            a[c][half] = has_row && weights[c] != nullptr ? weights[c][half * 4 * row_step] : 0.0F;
#pragma unroll
          for (int j = 0; j < kN; ++j) b[j][half] = has_row && source[j] != nullptr ? source[j][half * 4 * length] : 0.0F;
        }
#pragma unroll
        for (int c = 0; c < 2 * kM; ++c)
          if (weights[c] != nullptr) weights[c] += 8 * row_step;
#pragma unroll
        for (int j = 0; j < kN; ++j)
          if (source[j] != nullptr) source[j] += 8 * length;
      };
      load(0);
#pragma unroll 1
      for (int row = 0; row < rows; row += 8) {
        std::uint32_t a_high[kM][4], a_low[kM][4], b_high[kN][2], b_low[kN][2];
#pragma unroll
        for (int c = 0; c < 2 * kM; ++c) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const Tf32Parts parts(a[c][half]);
            a_high[c / 2][c % 2 + 2 * half] = parts.high;
            a_low[c / 2][c % 2 + 2 * half] = parts.low;
          }
        }
#pragma unroll
        for (int j = 0; j < kN; ++j) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const Tf32Parts parts(b[j][half]);
            b_high[j][half] = parts.high;
            b_low[j][half] = parts.low;
          }
        }
        if (row + 8 < rows) load(row + 8);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int j = 0; j < kN; ++j) {
            ptx::multiply_add_tf32(small[m][j], a_high[m], b_low[j]);
            ptx::multiply_add_tf32(small[m][j], a_low[m], b_high[j]);
            ptx::multiply_add_tf32(big[m][j], a_high[m], b_high[j]);
          }
        }
        if (++steps % kChain == 0) take_tf32(total, big);
      }
    }
  }
  take_tf32(total, big);
  take_tf32(total, small);
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) block->of[m][j][i] = total[m][j][i];
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
