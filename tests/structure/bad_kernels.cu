// Two kernels that check_ptxas.py must find: one spills, and the wgmmas of the other must be serialised by ptxas.

#include <cstdint>

#include "cuda/ptx/wgmma.cuh"

namespace ptx = polyphase::cuda::ptx;

/// 64 sums in 32 registers: that is what a thread has when two blocks of 1024 threads share an SM.
__global__ void __launch_bounds__(1024, 2) spills(const float* __restrict__ from, float* __restrict__ to, int steps) {
  float sums[64] = {};
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < 64; ++i) sums[i] = sums[i] * from[step] + sums[(i + 1) % 64];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) to[i * blockDim.x + threadIdx.x] = sums[i];
}

/// Reads sums while a wgmma may still be writing them.
__global__ void serialised(std::uint64_t a, std::uint64_t b, float* __restrict__ to) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  float sums[64] = {};
  ptx::wgmma_fence();
  ptx::Wgmma<ptx::Tensor::f16, 128>::multiply(sums, a, b, true);
  for (int i = 0; i < 64; ++i) sums[i] *= 2;
  ptx::Wgmma<ptx::Tensor::f16, 128>::multiply(sums, a, b, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (int i = 0; i < 64; ++i) to[i] = sums[i];
#endif
}
