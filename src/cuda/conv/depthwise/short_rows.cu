// Bound by memory if the rows of y are many: y is written or read once. A thread block stages a row of x, which all of its rows
// of y share.
//
//   y[n, c*M + m, t] = sum over k of w[c, m, k] * x[n, c, t + P - k]
//   x[n, c, i] = sum over m, k of w[c, m, k] * y[n, c*M + m, i + k - P]
//   w[c, m, k] = sum over n, t of y[n, c*M + m, t] * x[n, c, t + P - k]

#include "cuda/conv/depthwise/short_rows.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/conv/rounding.hpp"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/fast_divide.cuh"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda::depthwise {
namespace {

constexpr int kShortThreads = 256, kSumThreads = 1024;
constexpr int kOutputsOfBlock = 4096;   // about
constexpr int kTapsOfBlock = 6 * 1024;  // f32, at most
constexpr int kSamplesAtOnce = 8;       // whose rows of x are staged

/// A launch, computed on the host.
struct ShortRows {
  int N, C_in, M, K, P;
  int length, out_length;  // of rows of x and of y
  int at_once;             // rows of y of a thread block; samples of a slice
  FastDivide by_length;    // of y
  /// Numbers of a staged row: number j is x[j + P - (K - 1)], zero outside the row.
  [[nodiscard]] __host__ __device__ int span() const { return out_length + K - 1; }
};

/// Stages the row of x at `from`; the threads of the block.
template <class T>
__device__ __forceinline__ void stage_row(const ShortRows& rows, const T* from, float* staged) {
  for (int j = static_cast<int>(threadIdx.x); j < rows.span(); j += kShortThreads) {
    const int i = j + rows.P - (rows.K - 1);
    staged[j] = i >= 0 && i < rows.length ? convert<float>(from[i]) : 0.0F;
  }
}

/// A block has rows.at_once rows of y of one row of x.
template <class T>
__global__ void __launch_bounds__(kShortThreads)
    short_rows_kernel(const __grid_constant__ ShortRows rows, const __grid_constant__ Epilogue epilogue,
                      const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias, T* y) {
  extern __shared__ __align__(16) unsigned char memory[];
  float* const words = reinterpret_cast<float*>(memory);
  const int row = static_cast<int>(blockIdx.x), own = row % rows.C_in;
  const int first = static_cast<int>(blockIdx.y) * rows.at_once, count = min(rows.at_once, rows.M - first);
  float* const taps = words + rows.span();
  stage_row(rows, x + static_cast<std::int64_t>(row) * rows.length, words);
  const std::int64_t channel = static_cast<std::int64_t>(own) * rows.M + first;
  for (int i = static_cast<int>(threadIdx.x); i < count * rows.K; i += kShortThreads)
    taps[i] = convert<float>(w[channel * rows.K + i]);
  __syncthreads();
  T* const out = y + (static_cast<std::int64_t>(row) * rows.M + first) * rows.out_length;
  for (int i = static_cast<int>(threadIdx.x); i < count * rows.out_length; i += kShortThreads) {
    const int m = static_cast<int>(rows.by_length.divide(static_cast<std::uint32_t>(i))), t = i - m * rows.out_length;
    const float* const from = words + t + rows.K - 1;
    float sum = 0;
    for (int k = 0; k < rows.K; ++k) sum = fmaf(taps[m * rows.K + k], from[-k], sum);
    if (bias != nullptr) sum += convert<float>(bias[channel + m]);
    T* const to = out + i;
    *to = epilogue.finish<T>(sum, channel + m, to);
  }
}

/// A block has a row of x. Its threads are groups that each have all positions, and share the rows of y; the groups' sums are
/// added in order.
template <class T, int kMost>
__global__ void __launch_bounds__(kSumThreads)
    short_rows_sum_kernel(const __grid_constant__ ShortRows rows, const __grid_constant__ Epilogue epilogue,
                          const T* __restrict__ y, const T* __restrict__ w, const T* __restrict__ bias, T* x) {
  extern __shared__ __align__(16) unsigned char memory[];  // taps of rows.at_once rows, then a sum of each thread
  float* const words = reinterpret_cast<float*>(memory);
  const int row = static_cast<int>(blockIdx.x), own = row % rows.C_in, thread = static_cast<int>(threadIdx.x);
  const int groups = kSumThreads / rows.length, group = thread / rows.length, i = thread % rows.length;
  float* const parts = words + rows.at_once * rows.K;
  const T* const all = y + static_cast<std::int64_t>(row) * rows.M * rows.out_length;
  const T* const weights = w + static_cast<std::int64_t>(own) * rows.M * rows.K;
  float sum = 0;
  for (int first = 0; first < rows.M; first += rows.at_once) {
    const int count = min(rows.at_once, rows.M - first);
    __syncthreads();
    for (int at = thread; at < count * rows.K; at += kSumThreads)
      words[at] = convert<float>(weights[static_cast<std::int64_t>(first) * rows.K + at]);
    __syncthreads();
    if (group >= groups) continue;
#pragma unroll kMost <= 4 ? 4 : kMost <= 8 ? 2 : 1
    for (int m = group; m < count; m += groups) {
      const T* const from = all + static_cast<std::int64_t>(first + m) * rows.out_length;
#pragma unroll
      for (int k = 0; k < kMost; ++k) {
        const int t = i + k - rows.P;
        if (k < rows.K && t >= 0 && t < rows.out_length) sum = fmaf(convert<float>(from[t]), words[m * rows.K + k], sum);
      }
    }
  }
  parts[thread] = sum;
  __syncthreads();
  if (thread >= rows.length) return;
  float total = parts[thread];
  for (int other = 1; other < groups; ++other) total += parts[other * rows.length + thread];
  if (bias != nullptr) total += convert<float>(bias[own]);
  T* const to = x + static_cast<std::int64_t>(row) * rows.length + thread;
  *to = epilogue.finish<T>(total, own, to);
}

/// A thread has a row of weights, of at most kMost taps; a block 256 of them and a slice of the samples.
template <class T, int kMost>
__global__ void __launch_bounds__(kShortThreads)
    short_rows_wgrad_kernel(const __grid_constant__ ShortRows rows, const T* __restrict__ x, const T* __restrict__ y,
                            float* __restrict__ partial) {
  extern __shared__ __align__(16) unsigned char memory[];
  float* const words = reinterpret_cast<float*>(memory);
  const int m = static_cast<int>(blockIdx.x) * kShortThreads + static_cast<int>(threadIdx.x);
  const int own = static_cast<int>(blockIdx.y), slice = static_cast<int>(blockIdx.z);
  const int begin = slice * rows.at_once, end = min(begin + rows.at_once, rows.N);
  float sums[kMost] = {};
  for (int n = begin; n < end; n += kSamplesAtOnce) {
    const int count = min(kSamplesAtOnce, end - n);
    __syncthreads();
    for (int s = 0; s < count; ++s)
      stage_row(rows, x + (static_cast<std::int64_t>(n + s) * rows.C_in + own) * rows.length, words + s * rows.span());
    __syncthreads();
    for (int s = 0; m < rows.M && s < count; ++s) {
      const T* const from = y + ((static_cast<std::int64_t>(n + s) * rows.C_in + own) * rows.M + m) * rows.out_length;
      const float* const staged = words + s * rows.span() + rows.K - 1;
#pragma unroll kMost <= 8 ? 4 : 1
      for (int t = 0; t < rows.out_length; ++t) {
        const float value = convert<float>(from[t]);
#pragma unroll
        for (int k = 0; k < kMost; ++k) {
          if (k >= rows.K) break;
          sums[k] = fmaf(value, staged[t - k], sums[k]);
        }
      }
    }
  }
  if (m >= rows.M) return;
  float* const to = partial + ((static_cast<std::int64_t>(slice) * rows.C_in + own) * rows.M + m) * rows.K;
#pragma unroll
  for (int k = 0; k < kMost; ++k)
    if (k < rows.K) to[k] = sums[k];
}

ShortRows short_rows_of(const ConvProblem& p) {
  ShortRows rows{};
  rows.N = static_cast<int>(p.N), rows.C_in = static_cast<int>(p.C_in), rows.M = static_cast<int>(p.channels_out_per_group());
  rows.K = static_cast<int>(p.K), rows.P = static_cast<int>(p.P_l);
  rows.length = static_cast<int>(p.L_in), rows.out_length = static_cast<int>(p.L_out);
  rows.by_length = FastDivide(static_cast<std::uint32_t>(p.L_out));
  return rows;
}

template <class Use>
void with_short_type(DType dtype, const Use& use) {
  if (dtype == DType::f32) return use(float{});
  dtype == DType::f16 ? use(__half{}) : use(__nv_bfloat16{});
}

}  // namespace

void short_rows_forward(const ConvProblem& problem, const void* x, const void* w, const void* bias, void* y,
                        const Epilogue& epilogue, cudaStream_t stream) {
  ShortRows rows = short_rows_of(problem);
  rows.at_once = std::clamp(kOutputsOfBlock / rows.out_length, 1, std::min(rows.M, kTapsOfBlock / rows.K));
  const dim3 grid(static_cast<unsigned>(problem.N * problem.C_in), static_cast<unsigned>(divide_up(rows.M, rows.at_once)));
  const auto shared = static_cast<std::size_t>(rows.span() + rows.at_once * rows.K) * sizeof(float);
  with_short_type(problem.dtype, [&]<class T>(T) {
    short_rows_kernel<T><<<grid, kShortThreads, shared, stream>>>(
        rows, epilogue, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias), static_cast<T*>(y));
  });
  check_launch("conv depthwise: short rows");
}

void short_rows_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x,
                      const Epilogue& epilogue, cudaStream_t stream) {
  ShortRows rows = short_rows_of(problem);
  rows.at_once = std::min(rows.M, kTapsOfBlock / rows.K);
  const auto shared = static_cast<std::size_t>(rows.at_once * rows.K + kSumThreads) * sizeof(float);
  with_short_type(problem.dtype, [&]<class T>(T) {
    auto* const kernel = rows.K <= 4   ? short_rows_sum_kernel<T, 4>
                         : rows.K <= 8 ? short_rows_sum_kernel<T, 8>
                                       : short_rows_sum_kernel<T, 17>;
    kernel<<<static_cast<unsigned>(problem.N * problem.C_in), kSumThreads, shared, stream>>>(
        rows, epilogue, static_cast<const T*>(y), static_cast<const T*>(w), static_cast<const T*>(bias), static_cast<T*>(x));
  });
  check_launch("conv depthwise: sums of short rows");
}

std::int64_t short_rows_slices(const ConvProblem& problem, int sm_count) {
  const std::int64_t blocks = divide_up(problem.channels_out_per_group(), kShortThreads) * problem.C_in;
  const std::int64_t wanted = std::clamp<std::int64_t>(4 * sm_count / blocks, 1, std::min<std::int64_t>(problem.N, 65535));
  return divide_up(problem.N, divide_up(problem.N, wanted));
}

void short_rows_wgrad(const ConvProblem& problem, const void* x, const void* y, std::int64_t slices, float* partial,
                      cudaStream_t stream) {
  ShortRows rows = short_rows_of(problem);
  rows.at_once = static_cast<int>(divide_up(problem.N, slices));
  const dim3 grid(static_cast<unsigned>(divide_up(rows.M, kShortThreads)), static_cast<unsigned>(problem.C_in),
                  static_cast<unsigned>(slices));
  const auto shared = static_cast<std::size_t>(kSamplesAtOnce * rows.span()) * sizeof(float);
  with_short_type(problem.dtype, [&]<class T>(T) {
    auto* const kernel = rows.K <= 4   ? short_rows_wgrad_kernel<T, 4>
                         : rows.K <= 8 ? short_rows_wgrad_kernel<T, 8>
                                       : short_rows_wgrad_kernel<T, 17>;
    kernel<<<grid, kShortThreads, shared, stream>>>(rows, static_cast<const T*>(x), static_cast<const T*>(y), partial);
  });
  check_launch("conv depthwise: wgrad of short rows");
}

}  // namespace polyphase::cuda::depthwise
