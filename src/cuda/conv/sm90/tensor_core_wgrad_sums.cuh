#pragma once
// Adds the partial sums of a weight gradient where there are more weights than reduce_slices is made for.

#include <algorithm>
#include <cstdint>

#include "cuda/dependent_launch.cuh"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kAddThreads = 256;
inline constexpr int kAddLoads = 8;                                  // of a thread in flight
inline constexpr std::int64_t kManyWeights = std::int64_t{1} << 17;  // a thread each fills the device

/// w[i] = the sum over slices of partial[slice][i], in f64 and in order.
template <class T>
__global__ void __launch_bounds__(kAddThreads)
    add_slices_kernel(const float* __restrict__ partial, std::int64_t weights, std::int64_t slices, T* __restrict__ w) {
  wait_for_grid_before();
  const std::int64_t i = std::int64_t{blockIdx.x} * kAddThreads + threadIdx.x;
  if (i >= weights) return;
  double sum = 0;
  const float* from = partial + i;
  for (std::int64_t left = slices; left > 0; left -= kAddLoads, from += kAddLoads * weights) {
    float values[kAddLoads];
#pragma unroll
    for (int u = 0; u < kAddLoads; ++u) values[u] = u < left ? from[u * weights] : 0.0F;
#pragma unroll
    for (int u = 0; u < kAddLoads; ++u) sum += static_cast<double>(values[u]);
  }
  w[i] = static_cast<T>(static_cast<float>(sum));
}

/// Launches it behind the kernel before it; up to 2^31 blocks.
template <class T>
void add_slices(const float* partial, std::int64_t weights, std::int64_t slices, T* w, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((weights + kAddThreads - 1) / kAddThreads);
  launch_behind(&add_slices_kernel<T>, blocks, kAddThreads, 0, stream, partial, weights, slices, w);
  check_launch("conv wgrad: add slices of many weights");
}

}  // namespace polyphase::cuda::tensor_core
