#pragma once
// The last pass of the tensor-core weight gradient: adds the partial sums of the slices, and recomputes the few suspect weights
// (recompute.cuh).

#include <algorithm>
#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/reduce_slices.cuh"
#include "cuda/conv/tensor_core/wgrad/recompute.cuh"
#include "cuda/conv/tensor_core/wgrad/slices.cuh"
#include "cuda/conv/tensor_core/wgrad/tiles.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kSumThreads = 1024;  // many, since a whole block computes a weight again
inline constexpr int kAddWeights = 4;     // of a thread at a time, kSumThreads apart
inline constexpr int kLookWeights = 8;    // the same where they are only looked through
/// Suspect weights of a round that are summed again here, at most an eighth of it. More are left to the wide kernel; of long
/// sums, more than one.
inline constexpr int kFewWeights = 4;
inline constexpr std::int64_t kLongSum = std::int64_t{1} << 17;      // products
inline constexpr int kShortSum = 512;                                // products; so many weights as these are worth a warp each
inline constexpr int kAddBlocks = 2;                                 // of a multiprocessor
inline constexpr std::int64_t kManyWeights = std::int64_t{1} << 17;  // a thread each fills the device

/// Marks the block of weight i for the wide kernel. Not inlined, because the call is rare.
static __device__ __noinline__ void leave_to_wide(const ConvProblem& problem, const WideWeights& wide, std::int64_t i) {
  wide.mark(problem, i);
}

/// Shared data of a block of this pass.
template <int kMost>
struct WgradFound {
  WgradTrust trust;
  int count;         // per round
  int place[kMost];  // of each in the round, in any order: each is computed by itself

  /// Called by one thread before the first round.
  __device__ __forceinline__ void begin(const WgradScales* scales) {
    trust = trust_of(scales);
    count = 0;
  }
  __device__ __forceinline__ bool add(int own) {
    place[atomicAdd(&count, 1)] = own;
    return true;
  }
  /// Notes weight i, at place `own`, if it is suspect. Returns whether it is.
  __device__ __forceinline__ bool note(float weight, int own, const WgradTiles& tiles, std::int64_t i, WgradScales* scales) {
    if (fabsf(weight) >= trust.least) return false;
    if (trust.goes_by_job() && tiles.jobs > 1 && fabsf(weight) >= trust.least_with(small_of_jobs(scales)[job_of(tiles, i)]))
      return false;
    return add(own);
  }
  /// All threads, `any`: that it noted one in this round of so many weights, which ends. Few weights are computed again here,
  /// the blocks of more are marked for the wide kernel. at(place): the weight.
  template <class T, class At>
  __device__ __forceinline__ void compute(bool any, int round, const ConvProblem& problem, const T* x, const T* y, T* w,
                                          const At& at, const WgradScales* scales, const WideWeights& wide) {
    if (__syncthreads_or(any ? 1 : 0) == 0) return;
    const auto thread = static_cast<int>(threadIdx.x);
    const int again = count;
    const int few = problem.N * problem.L_in > kLongSum ? 1 : kFewWeights;
    const bool is_wide = sizeof(T) == sizeof(float) && again > min(few, round / 8) && wide.any != nullptr;
    const bool by_warps = problem.N * problem.L_in <= std::int64_t{kShortSum} * again;
    const WgradTeam team = by_warps ? WgradTeam{thread % 32, 32} : WgradTeam{thread, kSumThreads};
    for (int i = thread; is_wide && i < again; i += kSumThreads) leave_to_wide(problem, wide, at(place[i]));
    for (int i = by_warps ? thread / 32 : 0; !is_wide && i < again; i += kSumThreads / team.size)
      recompute(team, problem, x, y, w, at(place[i]), scales);
    __syncthreads();
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
  }
};

/// w[i] = the sum over slices of partial[slice][i], in f64: `lanes` threads per weight add slices y, y + lanes, ... in order,
/// then the lanes are added as a tree. No early start of the next launch, which would take longer than this pass.
template <class T>
__global__ void __launch_bounds__(kSumThreads, 1)
    wgrad_sums_kernel(const __grid_constant__ ConvProblem problem, const float* partial, std::int64_t weights,
                      std::int64_t slices, int lanes, const __grid_constant__ WgradTiles tiles, const T* x, const T* y, T* w,
                      WgradScales* scales, const __grid_constant__ WideWeights wide) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ double sums[kSumThreads];  // (lanes, weights)
  __shared__ WgradFound<kSumThreads> found;
  wait_for_grid_before();
  if (wide.has_all()) return;
  const int thread = static_cast<int>(threadIdx.x), columns = kSumThreads / lanes;
  const int column = thread % columns, lane = thread / columns;
  if (thread + 1 == kSumThreads) found.begin(scales);
  for (std::int64_t first = std::int64_t{blockIdx.x} * columns; first < weights; first += std::int64_t{gridDim.x} * columns) {
    const std::int64_t i = first + column;
    const double sum = sum_slices<kSumThreads>(sums, partial, weights, slices, lanes, i, i < weights);
    bool any = false;
    if (lane == 0 && i < weights) {
      const auto weight = static_cast<float>(sum);
      w[i] = static_cast<T>(weight);
      any = found.note(weight, column, tiles, i, scales);
    }
    found.compute(
        any, columns, problem, x, y, w, [&](int place) { return first + place; }, scales, wide);
  }
#endif
}

/// The same with one thread per weight, kAddWeights of them at a time.
template <class T>
__global__ void __launch_bounds__(kSumThreads, 1)
    wgrad_add_kernel(const __grid_constant__ ConvProblem problem, const float* partial, std::int64_t weights,
                     std::int64_t slices, const __grid_constant__ WgradTiles tiles, const T* x, const T* y, T* w,
                     WgradScales* scales, const __grid_constant__ WideWeights wide) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kRound = kSumThreads * kAddWeights;
  __shared__ WgradFound<kRound> found;
  wait_for_grid_before();
  if (wide.has_all()) return;
  if (threadIdx.x == 0) found.begin(scales);
  __syncthreads();
  for (std::int64_t first = std::int64_t{blockIdx.x} * kRound; first < weights; first += std::int64_t{gridDim.x} * kRound) {
    const std::int64_t own = first + threadIdx.x;
    double sums[kAddWeights] = {};
#pragma unroll 2
    for (std::int64_t slice = 0; slice < slices; ++slice) {
#pragma unroll
      for (int j = 0; j < kAddWeights; ++j) {
        const std::int64_t i = own + j * kSumThreads;
        if (i < weights) sums[j] += static_cast<double>(partial[slice * weights + i]);
      }
    }
    std::uint32_t below = 0;
#pragma unroll
    for (int j = 0; j < kAddWeights; ++j) {
      const std::int64_t i = own + j * kSumThreads;
      if (i >= weights) continue;
      const auto weight = static_cast<float>(sums[j]);
      w[i] = static_cast<T>(weight);
      below |= fabsf(weight) >= found.trust.least ? 0U : 1U << j;
    }
    bool any = false;
#pragma unroll 1
    for (; below != 0; below &= below - 1) {
      const std::int64_t i = own + (__ffs(static_cast<int>(below)) - 1) * kSumThreads;
      any = found.note(static_cast<float>(w[i]), static_cast<int>(i - first), tiles, i, scales) || any;
    }
    found.compute(
        any, kRound, problem, x, y, w, [&](int place) { return first + place; }, scales, wide);
  }
#endif
}

/// A round of the test of stored weights: some places of one job's box.
struct WgradRound {
  std::int64_t job, begin;
  WgradBox box;
  float least;  // of the job
  [[nodiscard]] __device__ __forceinline__ std::int64_t at(int place, std::int64_t weights) const {
    return box.at(begin + place, weights);
  }
};

/// Tests weights that are already stored; in f32 only those of jobs with numbers that are too small. A round is kLookWeights
/// per thread. No early start of the next launch either.
template <class T>
__global__ void __launch_bounds__(kSumThreads, 1)
    wgrad_look_kernel(const __grid_constant__ ConvProblem problem, std::int64_t weights,
                      const __grid_constant__ WgradTiles tiles, std::int64_t rounds, const T* x, const T* y, T* w,
                      WgradScales* scales, const __grid_constant__ WideWeights wide) {
  constexpr int kRound = kSumThreads * kLookWeights;
  __shared__ WgradFound<kRound> found;
  __shared__ WgradRound round;
  __shared__ int listed[kSumThreads], count;
  const auto thread = static_cast<int>(threadIdx.x);
  wait_for_grid_before();
  if (wide.has_all()) return;
  if (thread == 0) found.begin(scales);
  __syncthreads();
  if (scales != nullptr && found.trust.least == 0) return;
  const auto least_of = [&](std::int64_t job) {
    const bool by_job = found.trust.goes_by_job() && tiles.jobs > 1;
    return by_job ? found.trust.least_with(small_of_jobs(scales)[job]) : found.trust.least;
  };
  // Every thread finds out whether one of this block's rounds is worth it.
  for (std::int64_t first = blockIdx.x; first < tiles.jobs * rounds; first += std::int64_t{gridDim.x} * kSumThreads) {
    if (thread == 0) count = 0;
    __syncthreads();
    const std::int64_t own = first + std::int64_t{thread} * gridDim.x;
    if (own < tiles.jobs * rounds && (scales == nullptr || least_of(own / rounds) != 0)) listed[atomicAdd(&count, 1)] = thread;
    __syncthreads();
#pragma unroll 1
    for (int at = 0; at < count; ++at) {
      if (thread == 0) {
        const std::int64_t it = first + std::int64_t{listed[at]} * gridDim.x, job = it / rounds;
        round = {job, it % rounds * kRound, box_of(tiles, job), least_of(job)};
      }
      __syncthreads();
      float values[kLookWeights];
#pragma unroll
      for (int j = 0; j < kLookWeights; ++j) {
        const std::int64_t i = round.at(thread + j * kSumThreads, weights);
        values[j] = i >= 0 ? static_cast<float>(w[i]) : 0.0F;
      }
      std::uint32_t below = 0;
#pragma unroll
      for (int j = 0; j < kLookWeights; ++j) below |= fabsf(values[j]) >= round.least ? 0U : 1U << j;
      bool any = false;
#pragma unroll 1
      for (; below != 0; below &= below - 1) {
        const int place = thread + (__ffs(static_cast<int>(below)) - 1) * kSumThreads;
        const std::int64_t i = round.at(place, weights);
        if (i >= 0 && job_of(tiles, i) == round.job) any = found.add(place);
      }
      found.compute(
          any, kRound, problem, x, y, w, [&](int place) { return round.at(place, weights); }, scales, wide);
    }
    __syncthreads();
  }
}

[[nodiscard]] inline unsigned blocks_of(std::int64_t all, std::int64_t of_block, std::int64_t most) {
  return static_cast<unsigned>(std::min((all + of_block - 1) / of_block, most));
}

/// Launches the test after the kernel before it.
template <class T>
void recompute_wgrad(const WgradCall& call, const WgradTiles& tiles) {
  const ConvProblem& problem = call.problem;
  const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
  const std::int64_t round = std::int64_t{kSumThreads} * kLookWeights;
  const std::int64_t rounds = (box_size(tiles, weights) + round - 1) / round;
  launch_behind(&wgrad_look_kernel<T>, blocks_of(tiles.jobs * rounds, 1, properties(call.device).sm_count), kSumThreads, 0,
                call.stream, problem, weights, tiles, rounds, static_cast<const T*>(call.x), static_cast<const T*>(call.y),
                static_cast<T*>(call.w), call.scales, call.wide);
  check_launch("conv tensor_core: wgrad, what to compute again");
}

/// Launches the sums after the kernel before them. Those of a single slice of f32 may already be the weights.
template <class T>
void add_wgrad_slices(const WgradCall& call, const WgradTiles& tiles, const float* partial, std::int64_t slices) {
  if (static_cast<const void*>(partial) == call.w) return recompute_wgrad<T>(call, tiles);
  const ConvProblem& problem = call.problem;
  const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
  const auto* x = static_cast<const T*>(call.x);
  const auto* y = static_cast<const T*>(call.y);
  auto* w = static_cast<T*>(call.w);
  if (weights < kManyWeights && slices > 1) {
    const int lanes = slice_lanes(slices);
    launch_behind(&wgrad_sums_kernel<T>, blocks_of(weights, kSumThreads / lanes, 4096), kSumThreads, 0, call.stream, problem,
                  partial, weights, slices, lanes, tiles, x, y, w, call.scales, call.wide);
    return check_launch("conv tensor_core: wgrad sums");
  }
  launch_behind(&wgrad_add_kernel<T>,
                blocks_of(weights, kSumThreads * kAddWeights, kAddBlocks * properties(call.device).sm_count), kSumThreads, 0,
                call.stream, problem, partial, weights, slices, tiles, x, y, w, call.scales, call.wide);
  check_launch("conv tensor_core: wgrad sums of many weights");
}

}  // namespace polyphase::cuda::tensor_core
