// Backend::reduce_map: the sum of a function of two flat tensors, such as a loss; and its gradient for tensors of 16 bits.
//
// out = T(sum of f(a[i], b[i])) * q, with f computed in T and the sum in f64. A thread processes packs of 16 bytes if both
// tensors are aligned, else elements, with four accumulators, then a tree over lanes and warps. A second launch of one block
// adds the blocks' sums in the same way. No atomics: the same bits every run. Bytes: each operand once.

#include "cuda/elementwise/elementwise_functions.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/reduce/reduce.hpp"
#include "cuda/reduce/reduce_plan.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

template <MapOp op, class T>
__device__ __forceinline__ double value_of(T a, T b, T p) {
  if constexpr (op == MapOp::squared_difference) return static_cast<double>(squared_difference(a, b));
  return static_cast<double>(smooth_l1(a, b, p));
}

__device__ __forceinline__ double sum_of_warp(double sum) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  return sum;
}

/// The sum over the block's threads, in thread 0.
__device__ __forceinline__ double sum_of_block(double sum) {
  constexpr int kWarps = kPairThreads / 32;
  __shared__ double warps[kWarps];  // (warps)
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  return threadIdx.x < 32 ? sum_of_warp(threadIdx.x < kWarps ? warps[threadIdx.x] : 0) : 0;  // uniform in a warp
}

/// Writes T(sum) * q to `out`, or, if there is a second launch, the block's sum to its place in `partial`.
template <MapOp op, class In, class T = MathOf<In>>
__global__ void __launch_bounds__(kPairThreads) pair_kernel(const In* __restrict__ a, const In* __restrict__ b,
                                                            std::int64_t count, bool packs, T p, T q, T* out, double* partial) {
  constexpr int kPack = 16 / sizeof(In);
  constexpr int kUnroll = op == MapOp::squared_difference ? 4 : 1;  // the division has a slow path that spills
  double sums[4] = {};
  const std::int64_t body = packs ? count / kPack : 0;
#pragma unroll kUnroll
  for (std::int64_t i = thread_position(); i < body; i += thread_count()) {
    const auto x = reinterpret_cast<const Pack<In, kPack>*>(a)[i], y = reinterpret_cast<const Pack<In, kPack>*>(b)[i];
#pragma unroll
    for (int k = 0; k < kPack; ++k) sums[k % 4] += value_of<op>(convert<T>(x.at[k]), convert<T>(y.at[k]), p);
  }
#pragma unroll kUnroll
  for (std::int64_t i = body * kPack + thread_position(); i < count; i += thread_count())
    sums[0] += value_of<op>(convert<T>(a[i]), convert<T>(b[i]), p);
  const double sum = sum_of_block((sums[0] + sums[1]) + (sums[2] + sums[3]));
  if (threadIdx.x != 0) return;
  if (partial != nullptr) {
    partial[blockIdx.x] = sum;
  } else {
    *out = static_cast<T>(sum) * q;
  }
}

template <class T>
__global__ void __launch_bounds__(kPairThreads) add_pairs_kernel(const double* __restrict__ partial, int blocks, T q, T* out) {
  double sum = 0;
#pragma unroll
  for (int first = 0; first < kPairBlocks; first += kPairThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    if (i < blocks) sum += partial[i];
  }
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) *out = static_cast<T>(sum) * q;
}

template <MapOp op, class In>
void run_pair(const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars, cudaStream_t stream) {
  using T = MathOf<In>;
  const auto *x = static_cast<const In*>(a.raw()), *y = static_cast<const In*>(b.raw());
  auto* const result = static_cast<T*>(out.raw());
  const auto p = static_cast<T>(scalars.p), q = static_cast<T>(scalars.q);
  const std::int64_t blocks = pair_blocks(a.numel());
  const Buffer partial(blocks == 1 ? 0 : static_cast<std::size_t>(blocks) * sizeof(double), out.device().index);
  double* const between = blocks == 1 ? nullptr : partial.as<double>();
  pair_kernel<op><<<static_cast<unsigned>(blocks), kPairThreads, 0, stream>>>(
      x, y, a.numel(), is_aligned(x, 16) && is_aligned(y, 16), p, q, result, between);
  check_launch("reduce_map");
  if (blocks == 1) return;
  add_pairs_kernel<<<1, kPairThreads, 0, stream>>>(between, static_cast<int>(blocks), q, result);
  check_launch("reduce_map: add blocks");
}

/// out = q * gradient * (the derivative by a), computed in f32 and rounded once. 8 elements at a time if all arrays are
/// aligned.
template <MapOp op, class T>
__global__ void __launch_bounds__(kThreads)
    pair_gradient_kernel(const T* __restrict__ a, const T* __restrict__ b, const float* __restrict__ gradient,
                         std::int64_t count, bool packs, float p, float q, T* __restrict__ out) {
  constexpr int kPack = 16 / sizeof(T);
  const float scale = q * *gradient;
  const auto value = [&](T x, T y) {
    const float d = convert<float>(x) - convert<float>(y);
    return convert<T>(op == MapOp::squared_difference_grad ? scale * d : scale * smooth_l1_slope(d, p));
  };
  const std::int64_t body = packs ? count / kPack : 0;
  for (std::int64_t i = thread_position(); i < body; i += thread_count()) {
    const auto x = reinterpret_cast<const Pack<T, kPack>*>(a)[i], y = reinterpret_cast<const Pack<T, kPack>*>(b)[i];
    Pack<T, kPack> result;
#pragma unroll
    for (int k = 0; k < kPack; ++k) result.at[k] = value(x.at[k], y.at[k]);
    reinterpret_cast<Pack<T, kPack>*>(out)[i] = result;
  }
  for (std::int64_t i = body * kPack + thread_position(); i < count; i += thread_count()) out[i] = value(a[i], b[i]);
}

template <MapOp op, class T>
void run_gradient(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& gradient, MapScalars scalars,
                  cudaStream_t stream) {
  const auto *x = static_cast<const T*>(a.raw()), *y = static_cast<const T*>(b.raw());
  auto* const result = static_cast<T*>(out.raw());
  const bool packs = is_aligned(x, 16) && is_aligned(y, 16) && is_aligned(result, 16);
  const std::int64_t count = out.numel(), tasks = packs ? (count + 7) / 8 : count;
  pair_gradient_kernel<op, T><<<grid_for(tasks), kThreads, 0, stream>>>(x, y, static_cast<const float*>(gradient.raw()), count,
                                                                        packs, static_cast<float>(scalars.p),
                                                                        static_cast<float>(scalars.q), result);
  check_launch("pair_gradient");
}

}  // namespace

void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars, cudaStream_t stream) {
  dispatch_element(a.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) {
      if (op == MapOp::squared_difference) return run_pair<MapOp::squared_difference, T>(out, a, b, scalars, stream);
      run_pair<MapOp::smooth_l1, T>(out, a, b, scalars, stream);
    }
  });
}

void pair_gradient(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& gradient, MapScalars scalars,
                   cudaStream_t stream) {
  dispatch_element(a.dtype(), [&]<class T>(T) {
    if constexpr (kIsHalf<T>) {
      if (op == MapOp::squared_difference_grad)
        return run_gradient<MapOp::squared_difference_grad, T>(out, a, b, gradient, scalars, stream);
      run_gradient<MapOp::smooth_l1_grad, T>(out, a, b, gradient, scalars, stream);
    }
  });
}

}  // namespace polyphase::cuda
