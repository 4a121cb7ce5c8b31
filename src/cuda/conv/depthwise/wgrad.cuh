#pragma once
// The depthwise weight gradient: read kernel.cuh first. Device code of depthwise.cu.
//
// A block computes one output channel, up to four jobs (a class and kTapChunk of its taps) and one slice of the (sample, tile)
// pairs. A warp has one job: its threads keep the job's sums in registers over the whole slice, then add them by shuffles in a
// fixed order.

#include "cuda/conv/depthwise/kernel.cuh"

namespace polyphase::cuda::depthwise {

template <class T, class A>
__global__ void __launch_bounds__(kThreads)
    wgrad_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ Plan plan, const T* __restrict__ x,
                 const T* __restrict__ y, A* __restrict__ partial) {
  constexpr int kWarps = kThreads / 32;
  __shared__ A warp_sums[kWarps][kTapChunk];
  extern __shared__ __align__(16) unsigned char memory[];
  A* const low = reinterpret_cast<A*>(memory);
  A* const high = low + plan.low_words;
  std::int64_t block = blockIdx.x;
  const std::int64_t slice = block % plan.slices;
  block /= plan.slices;
  const int job_group = static_cast<int>(block % plan.job_groups);
  const std::int64_t co = block / plan.job_groups;
  const std::int64_t ci = co / plan.M;

  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
  const int jobs = min(kWarps, plan.jobs - job_group * kWarps);
  const int warps_per_job = kWarps / jobs;
  const int job = job_group * kWarps + warp % jobs, share = warp / jobs;
  const int a = job / plan.chunks, first_tap = (job - a * plan.chunks) * kTapChunk;
  const int taps = share < warps_per_job ? plan.taps_of(a) - first_tap : 0;  // the last chunk may have none
  A sums[kTapChunk] = {};
  const std::int64_t end = min(plan.tiles, (slice + 1) * plan.tiles_per_slice);
  const std::int64_t begin = slice * plan.tiles_per_slice;
  std::int64_t n = begin / plan.tiles_per_row, of_row = begin - n * plan.tiles_per_row;
  for (std::int64_t left = end - begin; left > 0; --left, ++of_row) {
    if (of_row == plan.tiles_per_row) of_row = 0, ++n;
    const std::int64_t i_begin = of_row * plan.positions;
    const T* x_row = x + (n * problem.C_in + ci) * problem.L_in;
    const T* y_row = y + (n * problem.C_out + co) * problem.L_out;
    const int x_shift = misalignment(x_row + i_begin, kVectorOf<T>);
    const std::int64_t t_begin = plan.S * i_begin - problem.P_l;
    const int y_shift = misalignment(y_row + t_begin, kVectorOf<T>);
    load_window(x_row, problem.L_in, i_begin - x_shift, plan.low_words, plan.low, low);
    load_window(y_row, problem.L_out, t_begin - y_shift, plan.S * plan.high.pitch, plan.high, high);
    __syncthreads();
    if (taps > 0) {
      const int e = static_cast<int>(a * plan.D) + y_shift;
      const int u = static_cast<int>(plan.high.by_stride.divide(static_cast<std::uint32_t>(e)));
      const A* from = high + (e - u * plan.S) * plan.high.pitch + u + first_tap * plan.Dg;
      for (int first = (share * 32 + lane) * kGroup; first < plan.positions; first += warps_per_job * 32 * kGroup) {
        A values[kGroup];
#pragma unroll
        for (int p = 0; p < kGroup; ++p) values[p] = low[x_shift + first + p];
        auto use = [&](int j, auto&& window) {
#pragma unroll
          for (int p = 0; p < kGroup; ++p) sums[j] += values[p] * window(p);
        };
        if (plan.Dg == 1)
          slide<true>(from + first, 1, taps, use);
        else
          slide<false>(from + first, plan.Dg, taps, use);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kTapChunk; ++j) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sums[j] += __shfl_down_sync(0xffffffffU, sums[j], offset);
    if (lane == 0) warp_sums[warp][j] = sums[j];
  }
  __syncthreads();
  if (share == 0 && lane < min(taps, kTapChunk)) {
    A sum = 0;
    for (int s = 0; s < warps_per_job; ++s) sum += warp_sums[warp % jobs + s * jobs][lane];
    partial[(slice * problem.C_out + co) * plan.K + a + (first_tap + lane) * plan.Sg] = sum;
  }
}

}  // namespace polyphase::cuda::depthwise
