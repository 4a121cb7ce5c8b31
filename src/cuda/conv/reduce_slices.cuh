#pragma once
// The second pass of every weight gradient: partial sums of fixed slices, added in order.

#include <algorithm>
#include <cstdint>

#include "cuda/runtime.hpp"

namespace polyphase::cuda {

/// w[i] = sum over slices of partial[slice][i], in order, in f64.
template <class T, class A>
__global__ void reduce_slices_kernel(const A* __restrict__ partial, std::int64_t weights, std::int64_t slices,
                                     T* __restrict__ w) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < weights;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    double sum = 0;
#pragma unroll 8
    for (std::int64_t slice = 0; slice < slices; ++slice) sum += static_cast<double>(partial[slice * weights + i]);
    w[i] = static_cast<T>(static_cast<A>(sum));
  }
}

/// Launches the kernel above.
template <class T, class A>
void reduce_slices(const A* partial, std::int64_t weights, std::int64_t slices, T* w, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>((weights + 127) / 128, 4096));
  reduce_slices_kernel<T, A><<<grid, 128, 0, stream>>>(partial, weights, slices, w);
  check_launch("conv wgrad: add slices");
}

}  // namespace polyphase::cuda
