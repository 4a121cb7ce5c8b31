#pragma once
// Recomputes suspect weights with FFMA, each by a block or by a warp. In f32: those whose numbers do not split exactly. In 16
// bits: Inf and NaN that met a zero of the padding, where there should be no product.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/conv/tensor_core/wgrad/types.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr float kSafeOfSmall = 2048;
inline constexpr int kRecomputeLoads = 8;  // outstanding loads per side and thread

/// A scaled sum at least this large loses little through numbers below the normal halves: each of `small` loses at most 2^-36
/// (2^-25 with one part) times the other side's `most`, which has to be less than 2^-24 (2^-12) of the sum.
__device__ __forceinline__ float least_safe_weight(SmallCount small, float most) {
  return static_cast<float>(small) * most * (1.0F / kSafeOfSmall);
}

/// Weights whose magnitude is not at least `least` are recomputed. NaN always is; all are if `least` is NaN, because some
/// number had no half. Other f32 weights are recomputed only if they are below the bound of their own job.
struct WgradTrust {
  float least, most;
  int exponent;  // of a weight, minus that of its scaled sum

  /// The bound for `small` numbers alone.
  __device__ __forceinline__ float least_with(SmallCount small) const {
    return ldexpf(least_safe_weight(small, most), exponent);
  }
  /// Whether trust depends on the numbers of a weight's job.
  __device__ __forceinline__ bool goes_by_job() const { return least > 0; }
};

/// `scales`: null for 16 bits.
__device__ __forceinline__ WgradTrust trust_of(const WgradScales* scales) {
  WgradTrust trust{0, 0, 0};
  if (scales == nullptr) return trust;
  const SmallCount small = scales->small;
  const std::uint32_t most = scales->most;
  if (most > __float_as_uint(kLargestHalf)) {
    trust.least = __int_as_float(0x7fffffff);
  } else if (small != 0) {
    trust.most = __uint_as_float(most);
    trust.exponent = -scale_exponent(largest_of(scales->x_largest), kSourceTarget) -
                     scale_exponent(largest_of(scales->y_largest), kSourceTarget);
    trust.least = trust.least_with(small);
  }
  return trust;
}

/// Threads that recompute a weight together.
struct WgradTeam {
  int rank, size;
};

/// The coordinates of a weight.
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

/// Whether a thread's share of positions from..to has Inf or NaN at row[start + step*position].
template <class T>
__device__ __forceinline__ bool has_unusual(const WgradTeam& team, const T* row, std::int64_t from, std::int64_t to,
                                            std::int64_t step, std::int64_t start) {
  constexpr float kLargest = 3.402823466e38F;
  bool found = false;
  for (std::int64_t i = from + team.rank; i <= to; i += team.size)
    found = found || !(fabsf(static_cast<float>(row[start + step * i])) <= kLargest);
  return found;
}

/// The same for all numbers that only pair with padding for this weight.
template <class T>
__device__ __forceinline__ bool meets_padding(const WgradTeam& team, const ConvProblem& problem, const T* x, const T* y,
                                              const WgradTap& tap) {
  // Position i of x pairs with y at first + S*i, which exists for lowest <= i <= highest.
  const std::int64_t first = tap.k * problem.D - problem.P_l;
  const std::int64_t lowest = -floor_divide(first, problem.S), highest = floor_divide(problem.L_out - 1 - first, problem.S);
  bool found = false;
  for (std::int64_t n = 0; n < problem.N && !found; ++n) {
    const T* xs = x + (n * problem.C_in + tap.ci) * problem.L_in;
    const T* ys = y + (n * problem.C_out + tap.co) * problem.L_out;
    found = has_unusual(team, xs, 0, min(lowest, problem.L_in) - 1, 1, 0) ||
            has_unusual(team, xs, max(highest + 1, std::int64_t{0}), problem.L_in - 1, 1, 0) ||
            has_unusual(team, ys, lowest, min(std::int64_t{-1}, highest), problem.S, first) ||
            has_unusual(team, ys, max(problem.L_in, lowest), highest, problem.S, first);
  }
  return found;
}

/// A thread's share of one weight: positions rank, + size, ... of those that exist, sample after sample. Ends at a NaN, which
/// stays.
template <class T>
__device__ __forceinline__ float share_of_sum(const WgradTeam& team, const ConvProblem& problem, const T* x, const T* y,
                                              const WgradTap& tap) {
  // Position u of x pairs with y at first + S*u, which exists for lowest <= u < lowest + width.
  const std::int64_t first = tap.k * problem.D - problem.P_l;
  const std::int64_t lowest = max(-floor_divide(first, problem.S), std::int64_t{0});
  const std::int64_t width = min(floor_divide(problem.L_out - 1 - first, problem.S) + 1, problem.L_in) - lowest;
  if (width <= 0) return 0;
  // The step from place to place: whole samples, then positions; the last may carry into one more sample.
  const auto n_step = static_cast<int>(team.size / width), u_step = static_cast<int>(team.size % width);
  const std::int64_t x_sample = problem.C_in * problem.L_in, y_sample = problem.C_out * problem.L_out;
  const std::int64_t x_step = n_step * x_sample + u_step, y_step = n_step * y_sample + problem.S * u_step;
  const std::int64_t x_carry = x_sample - width, y_carry = y_sample - problem.S * width;
  std::int64_t n = team.rank / width, u = team.rank - n * width;
  std::int64_t from_x = n * x_sample + tap.ci * problem.L_in + lowest + u;
  std::int64_t from_y = n * y_sample + tap.co * problem.L_out + first + problem.S * (lowest + u);
  float sum = 0;
  for (std::int64_t left = (problem.N * width - team.rank + team.size - 1) / team.size; left > 0 && !isnan(sum);
       left -= kRecomputeLoads) {
    float from[kRecomputeLoads], to[kRecomputeLoads];
#pragma unroll
    for (int i = 0; i < kRecomputeLoads; ++i) {
      from[i] = i < left ? static_cast<float>(x[from_x]) : 0.0F;
      to[i] = i < left ? static_cast<float>(y[from_y]) : 0.0F;
      u += u_step;
      const bool carries = u >= width;
      u -= carries ? width : 0;
      from_x += x_step + (carries ? x_carry : 0);
      from_y += y_step + (carries ? y_carry : 0);
    }
#pragma unroll
    for (int i = 0; i < kRecomputeLoads; ++i) sum = fmaf(from[i], to[i], sum);
  }
  return sum;
}

/// Recomputes weight i, by a warp or by all threads of a block of at most 1024. In 16 bits (`scales` is null) only if padding
/// explains the value.
template <class T>
__device__ __forceinline__ void recompute(const WgradTeam& team, const ConvProblem& problem, const T* x, const T* y, T* w,
                                          std::int64_t i, const WgradScales* scales) {
  __shared__ float warps[32];
  const bool is_warp = team.size == 32;
  const WgradTap tap = tap_of(problem, i);
  if (scales == nullptr) {
    const int meets = meets_padding(team, problem, x, y, tap) ? 1 : 0;
    if ((is_warp ? __any_sync(0xffffffffU, meets) : __syncthreads_or(meets)) == 0) return;
  }
  float sum = share_of_sum(team, problem, x, y, tap);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffU, sum, step);
  if (!is_warp) {
    if (team.rank % 32 == 0) warps[team.rank / 32] = sum;
    __syncthreads();
    if (team.rank == 0) {
      sum = 0;
      for (int warp = 0; warp < team.size / 32; ++warp) sum += warps[warp];
    }
    __syncthreads();
  }
  if (team.rank != 0) return;
  w[i] = static_cast<T>(sum);
  count_recomputed();
}

}  // namespace polyphase::cuda::tensor_core
