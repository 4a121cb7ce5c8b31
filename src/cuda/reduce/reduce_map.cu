// Backend::reduce_map: the sum of a function of two flat tensors, such as a loss.
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
template <MapOp op, class T>
__global__ void __launch_bounds__(kPairThreads) pair_kernel(const T* __restrict__ a, const T* __restrict__ b,
                                                            std::int64_t count, bool packs, T p, T q, T* out, double* partial) {
  constexpr int kPack = 16 / sizeof(T);
  constexpr int kUnroll = op == MapOp::squared_difference ? 4 : 1;  // the division has a slow path that spills
  double sums[4] = {};
  const std::int64_t body = packs ? count / kPack : 0;
#pragma unroll kUnroll
  for (std::int64_t i = thread_position(); i < body; i += thread_count()) {
    const auto x = reinterpret_cast<const Pack<T, kPack>*>(a)[i], y = reinterpret_cast<const Pack<T, kPack>*>(b)[i];
#pragma unroll
    for (int k = 0; k < kPack; ++k) sums[k] += value_of<op>(x.at[k], y.at[k], p);
  }
#pragma unroll kUnroll
  for (std::int64_t i = body * kPack + thread_position(); i < count; i += thread_count())
    sums[0] += value_of<op>(a[i], b[i], p);
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

template <MapOp op, class T>
void run_pair(const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars, cudaStream_t stream) {
  const auto *x = static_cast<const T*>(a.raw()), *y = static_cast<const T*>(b.raw());
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

template <class T>
void run_op(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars, cudaStream_t stream) {
  if (op == MapOp::squared_difference) return run_pair<MapOp::squared_difference, T>(out, a, b, scalars, stream);
  run_pair<MapOp::smooth_l1, T>(out, a, b, scalars, stream);
}

}  // namespace

void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars, cudaStream_t stream) {
  if (out.dtype() == DType::f64) return run_op<double>(op, out, a, b, scalars, stream);
  run_op<float>(op, out, a, b, scalars, stream);
}

}  // namespace polyphase::cuda
