#pragma once
// The wide kernel by rows (wide.hpp): which blocks multiply, and the sums of their slices in the same launch.
//
// Blocks take tickets in the order in which they start. The first have the products, as many as jobs and slices. The others
// wait until these have ended and store the weights of marked jobs: all blocks that they wait for have started before them.

#include <cstdint>

#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/conv/tensor_core/wgrad/recompute.cuh"
#include "cuda/conv/tensor_core/wgrad/slices.cuh"
#include "cuda/conv/tensor_core/wgrad/types.hpp"

namespace polyphase::cuda::tensor_core {

struct WideSums {
  ConvProblem problem;
  WideWeights wide;
  const float *x, *y, *partial;  // partial may be w
  float* w;
  std::int64_t weights, slices;
  int lanes;

  /// The ticket of a block, which all of its threads ask for.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t take_ticket() const {
    __shared__ std::uint32_t ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(wide.tickets(), 1U);
    __syncthreads();
    return ticket;
  }

  /// A block's products are stored; called after a barrier of those who stored them, by one thread.
  __device__ __forceinline__ void count_done() const {
    __threadfence();
    atomicAdd(wide.done(), 1U);
  }

  /// Waits for `products` blocks, then stores share `own` of `shares` of the weights. `sums`: shared, one a thread.
  template <int kThreads>
  __device__ __forceinline__ void store(double* sums, std::uint32_t products, std::uint32_t own, std::uint32_t shares) const {
    if (threadIdx.x == 0) {
      while (*static_cast<volatile std::uint32_t*>(wide.done()) != products) __nanosleep(200);
      __threadfence();
    }
    __syncthreads();
    const auto thread = static_cast<int>(threadIdx.x), columns = kThreads / lanes;
#pragma unroll 1
    for (std::int64_t first = std::int64_t{own} * columns; first < weights; first += std::int64_t{shares} * columns) {
      const std::int64_t i = first + thread % columns;
      const bool exists = i < weights && wide.has(problem, i);
      const auto weight = static_cast<float>(sum_slices<kThreads>(sums, partial, weights, slices, lanes, i, exists));
      store(i, weight, exists && thread < columns);
      __syncthreads();  // the next round writes `sums`
    }
  }

 private:
  /// By a warp; infinite weights and NaN are summed again by FFMA.
  __device__ __forceinline__ void store(std::int64_t i, float weight, bool exists) const {
    constexpr float kLargest = 3.402823466e38F;
    const bool is_unusual = exists && !(fabsf(weight) <= kLargest);
    if (exists && !is_unusual) w[i] = weight;
    const unsigned stored = __ballot_sync(0xffffffffU, exists && !is_unusual);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0 && stored != 0) count_recomputed(static_cast<unsigned>(__popc(stored)));
    for (unsigned lanes = __ballot_sync(0xffffffffU, is_unusual); lanes != 0; lanes &= lanes - 1) {
      const auto from = __ffs(static_cast<int>(lanes)) - 1;
      const WgradTap tap = tap_of(problem, __shfl_sync(0xffffffffU, i, from));
      float sum = share_of_sum(WgradTeam{lane, 32}, problem, x, y, tap);
      for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffU, sum, step);
      sum = __shfl_sync(0xffffffffU, sum, 0);
      if (lane == from) w[i] = sum;
      if (lane == 0) count_recomputed();
    }
  }
};

}  // namespace polyphase::cuda::tensor_core
