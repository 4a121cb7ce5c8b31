#include "gpu_check.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <limits>

#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::bench {
namespace {

constexpr int kThreads = 256;

/// pairs[2s] = the formula, pairs[2s + 1] = the result. A block a sample; its threads share the sum.
template <class T>
__global__ void sample_kernel(const __grid_constant__ ConvProblem p, ConvDirection direction, bool nhwc,
                              const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ y,
                              const std::int64_t* __restrict__ samples, double* __restrict__ pairs) {
  __shared__ double sums[kThreads];
  const std::int64_t index = samples[blockIdx.x];
  const std::int64_t R = p.C_in / p.G, M = p.C_out / p.G;
  const auto xv = [&](std::int64_t n, std::int64_t ci, std::int64_t i) {
    return static_cast<double>(x[nhwc ? (n * p.L_in + i) * p.C_in + ci : (n * p.C_in + ci) * p.L_in + i]);
  };
  const auto yv = [&](std::int64_t n, std::int64_t co, std::int64_t t) {
    return static_cast<double>(y[nhwc ? (n * p.L_out + t) * p.C_out + co : (n * p.C_out + co) * p.L_out + t]);
  };
  const auto wv = [&](std::int64_t ci, std::int64_t m, std::int64_t k) {
    return static_cast<double>(w[nhwc ? (ci * p.K + k) * M + m : (ci * M + m) * p.K + k]);
  };
  double sum = 0, result = 0;
  if (direction == ConvDirection::forward) {
    const std::int64_t t = index % p.L_out, co = index / p.L_out % p.C_out, n = index / p.L_out / p.C_out;
    for (std::int64_t j = threadIdx.x; j < R * p.K; j += kThreads) {
      const std::int64_t k = j % p.K, ci = co / M * R + j / p.K, at = t + p.P_l - k * p.D;
      if (at >= 0 && at % p.S == 0 && at / p.S < p.L_in) sum += xv(n, ci, at / p.S) * wv(ci, co % M, k);
    }
    result = yv(n, co, t);
  } else if (direction == ConvDirection::dgrad) {
    const std::int64_t i = index % p.L_in, ci = index / p.L_in % p.C_in, n = index / p.L_in / p.C_in;
    for (std::int64_t j = threadIdx.x; j < M * p.K; j += kThreads) {
      const std::int64_t k = j % p.K, m = j / p.K, t = p.S * i + k * p.D - p.P_l;
      if (t >= 0 && t < p.L_out) sum += yv(n, ci / R * M + m, t) * wv(ci, m, k);
    }
    result = xv(n, ci, i);
  } else {
    const std::int64_t k = index % p.K, m = index / p.K % M, ci = index / p.K / M;
    for (std::int64_t j = threadIdx.x; j < p.N * p.L_in; j += kThreads) {
      const std::int64_t n = j / p.L_in, i = j - n * p.L_in, t = p.S * i + k * p.D - p.P_l;
      if (t >= 0 && t < p.L_out) sum += xv(n, ci, i) * yv(n, ci / R * M + m, t);
    }
    result = wv(ci, m, k);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  pairs[2 * blockIdx.x] = sums[0];
  pairs[2 * blockIdx.x + 1] = result;
}

}  // namespace

double sampled_error(const ConvProblem& problem, ConvDirection direction, const DeviceOperands& operands, bool nhwc,
                     const std::vector<std::int64_t>& samples, cudaStream_t stream) {
  const std::size_t count = samples.size();
  const cuda::Buffer indices(count * sizeof(std::int64_t), 0), pairs(2 * count * sizeof(double), 0);
  CHECK_CUDA(cudaMemcpyAsync(indices.as<void>(), samples.data(), count * sizeof(std::int64_t), cudaMemcpyHostToDevice, stream));
  const auto run = [&]<class T>(const T*) {
    sample_kernel<T><<<static_cast<unsigned>(count), kThreads, 0, stream>>>(
        problem, direction, nhwc, static_cast<const T*>(operands.x), static_cast<const T*>(operands.w),
        static_cast<const T*>(operands.y), indices.as<std::int64_t>(), pairs.as<double>());
  };
  switch (problem.dtype) {
    case DType::f64:
      run(static_cast<const double*>(nullptr));
      break;
    case DType::f16:
      run(static_cast<const __half*>(nullptr));
      break;
    case DType::bf16:
      run(static_cast<const __nv_bfloat16*>(nullptr));
      break;
    default:
      run(static_cast<const float*>(nullptr));
      break;
  }
  cuda::check_launch("bench: samples");
  std::vector<double> host(2 * count);
  CHECK_CUDA(cudaMemcpyAsync(host.data(), pairs.as<void>(), host.size() * sizeof(double), cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  double worst = 0, squares = 0;
  for (std::size_t s = 0; s < count; ++s) {
    const double difference = std::abs(host[2 * s] - host[2 * s + 1]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
    squares += host[2 * s] * host[2 * s];
  }
  return squares > 0 ? worst / std::sqrt(squares / static_cast<double>(count)) : std::numeric_limits<double>::infinity();
}

}  // namespace polyphase::bench
