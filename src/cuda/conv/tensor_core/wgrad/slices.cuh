#pragma once
// The sum of a weight's partial sums.

#include <cstdint>

#include "cuda/conv/reduce_slices.cuh"

namespace polyphase::cuda::tensor_core {

/// The sum over slices of partial[slice][i], in f64, in the first of a weight's `lanes` threads: they add slices y, y + lanes,
/// ... in order, then the lanes are added as a tree. By all kThreads threads of a block, neighbours having neighbouring
/// weights; `sums`: shared, one a thread. The weight of a thread whose `exists` is false is not read.
template <int kThreads>
__device__ __forceinline__ double sum_slices(double* sums, const float* partial, std::int64_t weights, std::int64_t slices,
                                             int lanes, std::int64_t i, bool exists) {
  const auto thread = static_cast<int>(threadIdx.x), columns = kThreads / lanes, lane = thread / columns;
  const std::int64_t step = lanes * weights;
  const float* from = partial + lane * weights + i;
  // Lanes past the last slice read nothing; adding 0 does not change a sum that began at 0.
  std::int64_t left = exists && lane < slices ? (slices - lane + lanes - 1) / lanes : 0;
  double sum = 0;
  for (; left > 0; left -= kSliceLoads, from += kSliceLoads * step) {
    float values[kSliceLoads];
#pragma unroll
    for (int u = 0; u < kSliceLoads; ++u) values[u] = u < left ? from[u * step] : 0.0F;
#pragma unroll
    for (int u = 0; u < kSliceLoads; ++u) sum += static_cast<double>(values[u]);
  }
  if (lanes == 1) return sum;
  sums[thread] = sum;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) sums[thread] += sums[thread + half * columns];
  }
  return sums[thread];
}

}  // namespace polyphase::cuda::tensor_core
