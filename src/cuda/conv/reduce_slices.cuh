#pragma once
// The second pass of every weight gradient: adds the partial sums of the slices in a fixed order.

#include <algorithm>
#include <cstdint>

#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

inline constexpr int kSliceColumns = 32;  // weights per block: neighbours, so that a warp reads 32 neighbouring words
inline constexpr int kMostSliceLanes = 32;
inline constexpr int kSliceLoads = 8;  // outstanding loads per thread

/// Threads that share a weight's slices: a power of two that depends on `slices` alone, so the sum has the same bits every run.
[[nodiscard]] inline int slice_lanes(std::int64_t slices) {
  int lanes = 4;
  while (lanes < kMostSliceLanes && lanes * kSliceLoads < slices) lanes *= 2;
  return lanes;
}

/// Partial sums in the order of the weights.
struct WeightOrder {
  __device__ __forceinline__ std::int64_t operator()(std::int64_t i) const { return i; }
};

/// w[place(i)] = sum over slices of partial[slice][i], in f64: lane y adds slices y, y + lanes, ... in order, then the lanes
/// are added as a tree. Negative places are padding. Blocks have kSliceColumns * lanes threads. Pointers are not __restrict__:
/// the compiler could move loads before the wait.
template <class T, class A, class PlaceOf>
__global__ void __launch_bounds__(kSliceColumns* kMostSliceLanes, 1)
    reduce_slices_kernel(const A* partial, std::int64_t weights, std::int64_t slices, const __grid_constant__ PlaceOf place_of,
                         T* w) {
  __shared__ double sums[kMostSliceLanes][kSliceColumns];  // (lanes, weights)
  wait_for_grid_before();
  const int x = static_cast<int>(threadIdx.x) % kSliceColumns, y = static_cast<int>(threadIdx.x) / kSliceColumns;
  const int lanes = static_cast<int>(blockDim.x) / kSliceColumns;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSliceColumns; first < weights;
       first += static_cast<std::int64_t>(gridDim.x) * kSliceColumns) {
    const std::int64_t i = first + x;
    double sum = 0;
    const std::int64_t step = lanes * weights;
    const A* from = partial + y * weights + i;
    // Lanes past the last slice read nothing; adding 0 does not change a sum that began at 0.
    std::int64_t left = i < weights && y < slices ? (slices - y + lanes - 1) / lanes : 0;
    std::int64_t place = -1;
    bool is_placed = y != 0 || i >= weights;
    for (; left > 0; left -= kSliceLoads, from += kSliceLoads * step) {
      A values[kSliceLoads];
#pragma unroll
      for (int u = 0; u < kSliceLoads; ++u) values[u] = u < left ? from[u * step] : A(0);
      if (!is_placed) place = place_of(i), is_placed = true;  // during the loads
#pragma unroll
      for (int u = 0; u < kSliceLoads; ++u) sum += static_cast<double>(values[u]);
    }
    sums[y][x] = sum;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (y < half) sums[y][x] += sums[y + half][x];
    }
    if (place >= 0) w[place] = static_cast<T>(static_cast<A>(sums[0][x]));
    __syncthreads();  // read before the next weights' sums are written
  }
}

/// Launches the kernel above after the one before it; `weights` includes the padding.
template <class T, class A, class PlaceOf = WeightOrder>
void reduce_slices(const A* partial, std::int64_t weights, std::int64_t slices, T* w, cudaStream_t stream,
                   const PlaceOf& place_of = {}) {
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>((weights + kSliceColumns - 1) / kSliceColumns, 4096));
  const auto block = static_cast<unsigned>(kSliceColumns * slice_lanes(slices));
  launch_behind(&reduce_slices_kernel<T, A, PlaceOf>, grid, block, 0, stream, partial, weights, slices, place_of, w);
  check_launch("conv wgrad: add slices");
}

}  // namespace polyphase::cuda
