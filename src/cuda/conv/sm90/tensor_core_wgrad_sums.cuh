#pragma once
// The last pass of the tensor-core weight gradient: adds the partial sums of the slices, and computes again the few weights
// that the products may have got wrong (tensor_core_wgrad_again.cuh).

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "conv/problem.hpp"
#include "cuda/conv/reduce_slices.cuh"
#include "cuda/conv/sm90/tensor_core_wgrad_again.cuh"
#include "cuda/dependent_launch.cuh"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kSumThreads = 1024;                             // many, since a whole block computes a weight again
inline constexpr int kAddWeights = 4;                                // of a thread at a time, kSumThreads apart
inline constexpr int kLookWeights = 8;                               // the same where they are only looked through
inline constexpr int kAddBlocks = 2;                                 // of a multiprocessor
inline constexpr std::int64_t kManyWeights = std::int64_t{1} << 17;  // a thread each fills the device

/// What a block of this pass shares.
template <int kMost>
struct WgradFound {
  float least;       // weights that are not at least this large are computed again
  int count;         // of a round
  int place[kMost];  // of each in the round, in any order: each is computed by itself

  /// By one thread, before the first round.
  __device__ __forceinline__ void begin(const WgradScales* scales) {
    least = least_trusted_weight(scales);
    count = 0;
  }
  /// Whether the weight is to be computed again.
  __device__ __forceinline__ bool note(float weight, int own) {
    if (fabsf(weight) >= least) return false;
    place[atomicAdd(&count, 1)] = own;
    return true;
  }
  /// All threads, `any`: that it noted one in this round, which ends.
  template <class T>
  __device__ __forceinline__ void compute(bool any, const ConvProblem& problem, const T* x, const T* y, T* w,
                                          std::int64_t first, WgradScales* scales) {
    if (__syncthreads_or(any ? 1 : 0) == 0) return;
    const int again = count;
    for (int i = 0; i < again; ++i) compute_again(problem, x, y, w, first + place[i], scales);
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
  }
};

/// w[i] = the sum over slices of partial[slice][i], in f64: `lanes` threads a weight add slices y, y + lanes, ... in order,
/// then a tree over lanes.
template <class T>
__global__ void __launch_bounds__(kSumThreads, 1)
    wgrad_sums_kernel(const __grid_constant__ ConvProblem problem, const float* partial, std::int64_t weights,
                      std::int64_t slices, int lanes, const T* x, const T* y, T* w, WgradScales* scales) {
  __shared__ double sums[kSumThreads];  // (lanes, weights)
  __shared__ WgradFound<kSumThreads> found;
  let_dependents_start();
  wait_for_grid_before();
  const int thread = static_cast<int>(threadIdx.x), columns = kSumThreads / lanes;
  const int column = thread % columns, lane = thread / columns;
  if (thread + 1 == kSumThreads) found.begin(scales);
  for (std::int64_t first = std::int64_t{blockIdx.x} * columns; first < weights; first += std::int64_t{gridDim.x} * columns) {
    const std::int64_t i = first + column, step = lanes * weights;
    const float* from = partial + lane * weights + i;
    // Lanes past the last slice read nothing, and adding 0 changes no bit of a sum that began at 0.
    std::int64_t left = i < weights && lane < slices ? (slices - lane + lanes - 1) / lanes : 0;
    double sum = 0;
    for (; left > 0; left -= kSliceLoads, from += kSliceLoads * step) {
      float values[kSliceLoads];
#pragma unroll
      for (int u = 0; u < kSliceLoads; ++u) values[u] = u < left ? from[u * step] : 0.0F;
#pragma unroll
      for (int u = 0; u < kSliceLoads; ++u) sum += static_cast<double>(values[u]);
    }
    sums[thread] = sum;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) sums[thread] += sums[thread + half * columns];
    }
    bool any = false;
    if (lane == 0 && i < weights) {
      const auto weight = static_cast<float>(sums[thread]);
      w[i] = static_cast<T>(weight);
      any = found.note(weight, column);
    }
    found.compute(any, problem, x, y, w, first, scales);
  }
}

/// The same by a thread a weight, kWeights of them at a time. Sums of a single slice may be w itself.
template <class T, class A, int kWeights>
__global__ void __launch_bounds__(kSumThreads, 1)
    wgrad_add_kernel(const __grid_constant__ ConvProblem problem, const A* partial, std::int64_t weights, std::int64_t slices,
                     const T* x, const T* y, T* w, WgradScales* scales) {
  constexpr int kRound = kSumThreads * kWeights;
  __shared__ WgradFound<kRound> found;
  const bool is_there = static_cast<const void*>(partial) == static_cast<const void*>(w);
  if (!is_there) let_dependents_start();
  wait_for_grid_before();
  if (threadIdx.x == 0) found.begin(scales);
  __syncthreads();
  if (is_there && scales != nullptr && found.least == 0) return;
  for (std::int64_t first = std::int64_t{blockIdx.x} * kRound; first < weights; first += std::int64_t{gridDim.x} * kRound) {
    const std::int64_t own = first + threadIdx.x;
    double sums[kWeights] = {};
#pragma unroll 2
    for (std::int64_t slice = 0; slice < slices; ++slice) {
#pragma unroll
      for (int j = 0; j < kWeights; ++j) {
        const std::int64_t i = own + j * kSumThreads;
        if (i < weights) sums[j] += static_cast<double>(static_cast<float>(partial[slice * weights + i]));
      }
    }
    bool any = false;
#pragma unroll
    for (int j = 0; j < kWeights; ++j) {
      const std::int64_t i = own + j * kSumThreads;
      if (i >= weights) continue;
      const auto weight = static_cast<float>(sums[j]);
      if (!is_there) w[i] = static_cast<T>(weight);
      any = found.note(weight, static_cast<int>(i - first)) || any;
    }
    found.compute(any, problem, x, y, w, first, scales);
  }
}

/// Launches it behind the kernel before it.
template <class T, class A>
void add_wgrad_slices(const WgradCall& call, const A* partial, std::int64_t slices) {
  const ConvProblem& problem = call.problem;
  const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
  const auto* x = static_cast<const T*>(call.x);
  const auto* y = static_cast<const T*>(call.y);
  auto* w = static_cast<T*>(call.w);
  const auto blocks_of = [&](std::int64_t columns, std::int64_t most) {
    return static_cast<unsigned>(std::min((weights + columns - 1) / columns, most));
  };
  if constexpr (std::is_same_v<A, float>) {
    if (weights < kManyWeights && slices > 1) {
      const int lanes = slice_lanes(slices);
      launch_behind(&wgrad_sums_kernel<T>, blocks_of(kSumThreads / lanes, 4096), kSumThreads, 0, call.stream, problem, partial,
                    weights, slices, lanes, x, y, w, call.scales);
      return check_launch("conv tensor_core: wgrad sums");
    }
  }
  // In place there is only something to look for.
  const int sms = properties(call.device).sm_count;
  if (static_cast<const void*>(partial) == call.w)
    launch_behind(&wgrad_add_kernel<T, A, kLookWeights>, blocks_of(kSumThreads * kLookWeights, sms), kSumThreads, 0,
                  call.stream, problem, partial, weights, slices, x, y, w, call.scales);
  else
    launch_behind(&wgrad_add_kernel<T, A, kAddWeights>, blocks_of(kSumThreads * kAddWeights, kAddBlocks * sms), kSumThreads, 0,
                  call.stream, problem, partial, weights, slices, x, y, w, call.scales);
  check_launch("conv tensor_core: wgrad sums of many weights");
}

}  // namespace polyphase::cuda::tensor_core
