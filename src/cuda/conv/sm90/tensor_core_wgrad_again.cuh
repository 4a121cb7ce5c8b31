#pragma once
// Weights that the products on the tensor cores may have got wrong, computed again by a block with FFMA: of f32, what the
// splitting does not hold; of 16 bits, infinities and NaN that met a zero of the padding, where no product should have been.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/again_count.cuh"
#include "cuda/conv/sm90/operand.cuh"
#include "cuda/conv/sm90/tensor_core_wgrad_types.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kAgainLoads = 8;  // of each side in flight a thread

/// A sum, scaled, that is at least this large loses little through numbers below the normal halves: each of `small` loses at
/// most 2^-36 (2^-25 where a number is one half) times the other side's `most`, which has to be less than 2^-24 (2^-12) of the
/// sum.
__device__ __forceinline__ float least_safe_weight(std::uint32_t small, float most) {
  return static_cast<float>(small) * most * (1.0F / 2048);
}

/// Weights that are not at least this large are computed again: NaN always, all of them where it is NaN itself, since a number
/// had no half. `scales`: null for 16 bits.
__device__ __forceinline__ float least_trusted_weight(const WgradScales* scales) {
  if (scales == nullptr) return 0;
  const std::uint32_t small = scales->small, most = scales->most;
  if (most > __float_as_uint(kLargestHalf)) return __int_as_float(0x7fffffff);
  if (small == 0) return 0;
  return ldexpf(least_safe_weight(small, __uint_as_float(most)),
                -scale_exponent(largest_of(scales->x_largest), kSourceTarget) -
                    scale_exponent(largest_of(scales->y_largest), kSourceTarget));
}

/// A weight's place.
struct WgradTap {
  std::int64_t ci, co, k;
};

__device__ __forceinline__ WgradTap tap_of(const ConvProblem& problem, std::int64_t i) {
  const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
  const std::int64_t ci = i / problem.K / out;
  return {ci, ci / in * out + i / problem.K % out, i % problem.K};
}

__device__ __forceinline__ std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/// Whether a thread's share of positions from..to has an infinity or a NaN at row[start + step*position].
template <class T>
__device__ __forceinline__ bool has_unusual(const T* row, std::int64_t from, std::int64_t to, std::int64_t step,
                                            std::int64_t start) {
  constexpr float kLargest = 3.402823466e38F;
  bool found = false;
  for (std::int64_t i = from + threadIdx.x; i <= to; i += blockDim.x)
    found = found || !(fabsf(static_cast<float>(row[start + step * i])) <= kLargest);
  return found;
}

/// The same of all the weight's numbers that have no partner, since padding is there.
template <class T>
__device__ __forceinline__ bool meets_padding(const ConvProblem& problem, const T* x, const T* y, const WgradTap& tap) {
  // Position i of x meets y at first + S*i, which y has for lowest <= i <= highest.
  const std::int64_t first = tap.k * problem.D - problem.P_l;
  const std::int64_t lowest = -floor_divide(first, problem.S), highest = floor_divide(problem.L_out - 1 - first, problem.S);
  bool found = false;
  for (std::int64_t n = 0; n < problem.N && !found; ++n) {
    const T* xs = x + (n * problem.C_in + tap.ci) * problem.L_in;
    const T* ys = y + (n * problem.C_out + tap.co) * problem.L_out;
    found = has_unusual(xs, 0, min(lowest, problem.L_in) - 1, 1, 0) ||
            has_unusual(xs, max(highest + 1, std::int64_t{0}), problem.L_in - 1, 1, 0) ||
            has_unusual(ys, lowest, min(std::int64_t{-1}, highest), problem.S, first) ||
            has_unusual(ys, max(problem.L_in, lowest), highest, problem.S, first);
  }
  return found;
}

/// A thread's share of one weight: positions threadIdx.x, + blockDim.x, ... of all samples. NaN, which stays, ends it.
template <class T>
__device__ __forceinline__ float share_again(const ConvProblem& problem, const T* x, const T* y, const WgradTap& tap) {
  float sum = 0;
  std::int64_t n = 0, u = threadIdx.x;
  while (true) {
    float from[kAgainLoads], to[kAgainLoads];
#pragma unroll
    for (int i = 0; i < kAgainLoads; ++i) {
      for (; u >= problem.L_in && n < problem.N; ++n) u -= problem.L_in;
      const std::int64_t t = problem.S * u + tap.k * problem.D - problem.P_l;
      const bool exists = n < problem.N && t >= 0 && t < problem.L_out;
      from[i] = exists ? static_cast<float>(x[(n * problem.C_in + tap.ci) * problem.L_in + u]) : 0.0F;
      to[i] = exists ? static_cast<float>(y[(n * problem.C_out + tap.co) * problem.L_out + t]) : 0.0F;
      u += blockDim.x;
    }
#pragma unroll
    for (int i = 0; i < kAgainLoads; ++i) sum = fmaf(from[i], to[i], sum);
    if (n >= problem.N || isnan(sum)) return sum;
  }
}

/// Computes weight i again, by all threads of a block of at most 1024; of 16 bits, where `scales` is null, only if padding
/// explains what it is.
template <class T>
__device__ __forceinline__ void compute_again(const ConvProblem& problem, const T* x, const T* y, T* w, std::int64_t i,
                                              WgradScales* scales) {
  __shared__ float warps[32];
  const WgradTap tap = tap_of(problem, i);
  if (scales == nullptr && __syncthreads_or(meets_padding(problem, x, y, tap) ? 1 : 0) == 0) return;
  float sum = share_again(problem, x, y, tap);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffU, sum, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += warps[warp];
    w[i] = static_cast<T>(sum);
    count_again();
  }
  __syncthreads();
}

}  // namespace polyphase::cuda::tensor_core
