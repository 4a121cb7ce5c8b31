#pragma once
// The general depthwise kernels: each channel by itself, M = C_out/G outputs per channel. Device code of depthwise.cu.
//
// Write a tap as k = a + j*Sg (tap_gemm.hpp): the taps of class a read the low rate Dg positions apart and use one plane of the
// high rate. A thread computes kGroup neighbouring low-rate positions of one class and slides over the class's taps: with Dg =
// 1, kGroup + taps - 1 words of shared memory for kGroup*taps FFMAs. kGroup is odd, so that 32 threads use 32 banks. A block
// computes a tile of plan.positions low-rate positions of one row. Rows pass through shared memory in 16-byte pieces for any
// length and alignment (row_stage.cuh); tiles of the written row begin at 128-byte boundaries of memory. Bytes: x and y once
// (plus halos of K*D elements per tile, from L2). Operations are far below the limit: 2*K per low-rate element.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/depthwise/row_stage.cuh"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/vector.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kGroup = 7;     // positions per thread
inline constexpr int kTapChunk = 8;  // taps of a class at a time
inline constexpr int kThreads = 128;
inline constexpr int kLine = 128;  // bytes
// Blocks per SM of dgrad in f64; 0 leaves the number to ptxas, which then takes so few registers on sm_90 that some spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kDoubleBlocks = 0;
#else
inline constexpr int kDoubleBlocks = 9;
#endif

/// A launch, computed on the host.
struct Plan {
  int M;  // outputs per channel
  int S, K;
  int classes, taps, full_classes;  // taps per class: `taps`, one less from class full_classes on
  int Sg, Dg;
  std::int64_t D;
  int positions;  // low-rate positions per tile
  int low_words;  // of the low-rate stage
  std::int64_t tiles_per_row, blocks;
  Planes low, high;  // low: one plane
  // wgrad
  int jobs, chunks, job_groups;  // jobs of an output row: (class, chunk of taps)
  std::int64_t slices, tiles_per_slice, tiles;

  __device__ int taps_of(int a) const { return a < full_classes ? taps : taps - 1; }
};

__device__ __forceinline__ std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/// Calls use(j, window) for the taps j of a chunk; window(p) = from[p + j*step] for the kGroup positions.
template <bool kSlide, class A, class Use>
__device__ __forceinline__ void slide(const A* from, int step, int taps, Use&& use) {
  if constexpr (kSlide) {
    A ring[kGroup];
#pragma unroll
    for (int p = 0; p < kGroup - 1; ++p) ring[p] = from[p];
#pragma unroll
    for (int j = 0; j < kTapChunk; ++j) {
      if (j >= taps) break;
      ring[(j + kGroup - 1) % kGroup] = from[j + kGroup - 1];
      use(j, [&](int p) { return ring[(p + j) % kGroup]; });
    }
  } else {
#pragma unroll
    for (int j = 0; j < kTapChunk; ++j) {
      if (j >= taps) break;
      use(j, [&](int p) { return from[p + j * step]; });
    }
  }
}

/// sums[p] += sum over the class's taps of from[p + j*step] * w[j].
template <class A>
__device__ __forceinline__ void add_taps(const A* from, int step, const A* w, int taps, A (&sums)[kGroup]) {
  for (int first = 0; first < taps; first += kTapChunk, from += kTapChunk * step, w += kTapChunk) {
    auto use = [&](int j, auto&& window) {
      const A weight = w[j];
#pragma unroll
      for (int p = 0; p < kGroup; ++p) sums[p] += window(p) * weight;
    };
    if (step == 1)
      slide<true>(from, step, taps - first, use);
    else
      slide<false>(from, step, taps - first, use);
  }
}

template <class A>
__device__ __forceinline__ void put_group(A* to, int count, const A (&sums)[kGroup]) {
#pragma unroll
  for (int p = 0; p < kGroup; ++p) {
    if (p < count) to[p] = sums[p];
  }
}

/// Computes one tile of one row of y. Shared memory: x (low_words), taps (classes x taps), y (S planes).
template <class T, class A>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ Plan plan, const T* __restrict__ x,
                   const T* __restrict__ w, const T* __restrict__ bias, T* __restrict__ y,
                   const __grid_constant__ Epilogue epilogue) {
  extern __shared__ __align__(16) unsigned char memory[];
  A* const source = reinterpret_cast<A*>(memory);
  A* const taps = source + plan.low_words;
  A* const result = taps + (plan.classes * plan.taps + 7) / 8 * 8;
  for (std::int64_t block = blockIdx.x; block < plan.blocks; block += gridDim.x) {
    const std::int64_t row = block / plan.tiles_per_row;  // of y
    const std::int64_t tile = block - row * plan.tiles_per_row;
    const std::int64_t channel = row % problem.C_out;
    const T* from = x + row / plan.M * problem.L_in;
    T* to = y + row * problem.L_out;
    const int width = plan.positions * plan.S;
    const std::int64_t t_begin = tile * width - misalignment(to, kLine / static_cast<int>(sizeof(T)));
    if (t_begin >= problem.L_out) continue;
    const std::int64_t q_begin = t_begin + problem.P_l;
    std::int64_t i_begin = floor_divide(q_begin - (plan.K - 1) * plan.D, plan.S);
    i_begin -= misalignment(from + i_begin, kVectorOf<T>);
    load_window(from, problem.L_in, i_begin, plan.low_words, plan.low, source);
    for (int slot = static_cast<int>(threadIdx.x); slot < plan.classes * plan.taps; slot += kThreads) {
      const int a = slot / plan.taps, j = slot - a * plan.taps, count = plan.taps_of(a);
      if (j < count) taps[slot] = static_cast<A>(w[channel * plan.K + a + (count - 1 - j) * plan.Sg]);
    }
    if (plan.classes < plan.S) {
      for (int i = static_cast<int>(threadIdx.x); i < plan.S * plan.high.pitch; i += kThreads) result[i] = A(0);
    }
    __syncthreads();
    const int groups = (plan.positions + kGroup - 1) / kGroup;
    for (int item = static_cast<int>(threadIdx.x); item < groups * plan.classes; item += kThreads) {
      const int a = item / groups, first = (item - a * groups) * kGroup;
      const std::int64_t behind = q_begin - a * plan.D;
      const std::int64_t position = -floor_divide(-behind, plan.S);  // the class's first in the tile
      const int residue = static_cast<int>(position * plan.S - behind);
      const int count = plan.taps_of(a);
      A sums[kGroup] = {};
      const int at = static_cast<int>(position - i_begin) - (count - 1) * plan.Dg + first;
      add_taps(source + at, plan.Dg, taps + a * plan.taps, count, sums);
      put_group(result + residue * plan.high.pitch + first, plan.positions - first, sums);
    }
    __syncthreads();
    store_window(to, problem.L_out, t_begin, width, plan.high, result, bias != nullptr ? static_cast<A>(bias[channel]) : A(0));
    if (epilogue.is_needed())
      finish_stored<A>(epilogue, to, problem.L_out, t_begin, width, channel, static_cast<int>(threadIdx.x), kThreads);
    __syncthreads();
  }
}

/// Computes one tile of one row of x; the sums over M output rows stay in registers. Shared memory: y (S planes), taps, x
/// (positions).
template <class T, class A>
__global__ void __launch_bounds__(kThreads, sizeof(A) == 8 ? kDoubleBlocks : 0)
    dgrad_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ Plan plan, const T* __restrict__ y,
                 const T* __restrict__ w, const T* __restrict__ bias, T* __restrict__ x,
                 const __grid_constant__ Epilogue epilogue) {
  extern __shared__ __align__(16) unsigned char memory[];
  A* const source = reinterpret_cast<A*>(memory);
  A* const taps = source + plan.S * plan.high.pitch;
  A* const result = taps + (plan.classes * plan.taps + 7) / 8 * 8;
  for (std::int64_t block = blockIdx.x; block < plan.blocks; block += gridDim.x) {
    const std::int64_t row = block / plan.tiles_per_row;  // of x
    const std::int64_t tile = block - row * plan.tiles_per_row;
    const std::int64_t channel = row % problem.C_in;
    T* to = x + row * problem.L_in;
    const std::int64_t i_begin = tile * plan.positions - misalignment(to, kLine / static_cast<int>(sizeof(T)));
    if (i_begin >= problem.L_in) continue;
    const int first = static_cast<int>(threadIdx.x) * kGroup;
    A sums[kGroup] = {};
    for (int m = 0; m < plan.M; ++m) {
      const T* from = y + (row * plan.M + m) * problem.L_out;
      std::int64_t begin = plan.S * i_begin - problem.P_l;
      const int shift = misalignment(from + begin, kVectorOf<T>);
      begin -= shift;
      const int width = plan.S * plan.high.pitch / kVectorOf<T> * kVectorOf<T>;
      load_window(from, problem.L_out, begin, width, plan.high, source);
      const T* weights = w + (channel * plan.M + m) * plan.K;
      for (int slot = static_cast<int>(threadIdx.x); slot < plan.classes * plan.taps; slot += kThreads) {
        const int a = slot / plan.taps, j = slot - a * plan.taps;
        if (j < plan.taps_of(a)) taps[slot] = static_cast<A>(weights[a + j * plan.Sg]);
      }
      __syncthreads();
      if (first < plan.positions) {
        for (int a = 0; a < plan.classes; ++a) {
          const int e = static_cast<int>(a * plan.D) + shift;
          const int u = static_cast<int>(plan.high.by_stride.divide(static_cast<std::uint32_t>(e)));
          add_taps(source + (e - u * plan.S) * plan.high.pitch + u + first, plan.Dg, taps + a * plan.taps, plan.taps_of(a),
                   sums);
        }
      }
      __syncthreads();
    }
    if (first < plan.positions) put_group(result + first, plan.positions - first, sums);
    __syncthreads();
    store_window(to, problem.L_in, i_begin, plan.positions, plan.low, result,
                 bias != nullptr ? static_cast<A>(bias[channel]) : A(0));
    if (epilogue.is_needed())
      finish_stored<A>(epilogue, to, problem.L_in, i_begin, plan.positions, channel, static_cast<int>(threadIdx.x), kThreads);
    __syncthreads();
  }
}

}  // namespace polyphase::cuda::depthwise
