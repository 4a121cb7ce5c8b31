// w = v*(g/||v||) for rows, and its gradients, w and its gradient in T or in 16 bits (W). A block computes one row, which it
// reads twice: the second time it comes from the cache. Sums in f64. Rounded to T after every step and not contracted to fused
// multiply-adds, as separate operations are.
//
// A network has a hundred such weights of a few hundred kilobytes: launches take longer than the memory, so there is one each.

#include "cuda/reduce/weight_norm.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/reduce/block_sum.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kNormWarps = 8, kNormThreads = 32 * kNormWarps;

__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }

template <class T, class W>
__global__ void __launch_bounds__(kNormThreads)
    weight_norm_kernel(std::int64_t rows, std::int64_t columns, const T* __restrict__ v, const T* __restrict__ g,
                       W* __restrict__ w, T* __restrict__ norms) {
  __shared__ double partial[kNormWarps];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from = v + row * columns;
    double squares = 0;
    for (std::int64_t c = threadIdx.x; c < columns; c += kNormThreads)
      squares = fma(static_cast<double>(from[c]), static_cast<double>(from[c]), squares);
    const T norm = sqrt(static_cast<T>(block_sum(squares, partial))), scale = g[row] / norm;
    for (std::int64_t c = threadIdx.x; c < columns; c += kNormThreads) w[row * columns + c] = convert<W>(times(from[c], scale));
    if (threadIdx.x == 0) norms[row] = norm;
  }
}

template <class T, class W>
__global__ void __launch_bounds__(kNormThreads)
    weight_norm_backward_kernel(std::int64_t rows, std::int64_t columns, const W* __restrict__ dw, const T* __restrict__ v,
                                const T* __restrict__ g, const T* __restrict__ norms, T* __restrict__ dv, T* __restrict__ dg) {
  __shared__ double partial[kNormWarps];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const W* const in = dw + row * columns;
    const T* const direction = v + row * columns;
    double products = 0;
    for (std::int64_t c = threadIdx.x; c < columns; c += kNormThreads)
      products += static_cast<double>(times(convert<T>(in[c]), direction[c]));
    const T norm = norms[row], of_g = static_cast<T>(block_sum(products, partial)) / norm;
    const T scale = g[row] / norm, along = times(scale, of_g / norm);
    for (std::int64_t c = threadIdx.x; c < columns; c += kNormThreads)
      dv[row * columns + c] = times(convert<T>(in[c]), scale) - times(direction[c], along);
    if (threadIdx.x == 0) dg[row] = of_g;
  }
}

unsigned grid_of(std::int64_t rows) { return static_cast<unsigned>(std::min<std::int64_t>(rows, 1 << 20)); }

template <class T>
const T* data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.raw());
}

/// Calls function(T{}, W{}) with the dtypes of v and w.
template <class Function>
void with_types(DType v, DType w, const Function& function) {
  if (v == DType::f64) return function(double{}, double{});
  if (w == DType::f16) return function(float{}, __half{});
  if (w == DType::bf16) return function(float{}, __nv_bfloat16{});
  function(float{}, float{});
}

}  // namespace

void weight_norm(const Tensor& w, const Tensor& norms, const Tensor& v, const Tensor& g, cudaStream_t stream) {
  const std::int64_t rows = v.size(0), columns = v.numel() / rows;
  with_types(v.dtype(), w.dtype(), [&]<class T, class W>(T, W) {
    weight_norm_kernel<<<grid_of(rows), kNormThreads, 0, stream>>>(rows, columns, data<T>(v), data<T>(g),
                                                                   static_cast<W*>(w.raw()), static_cast<T*>(norms.raw()));
  });
  check_launch("weight_norm");
}

void weight_norm_backward(const Tensor& dv, const Tensor& dg, const Tensor& dw, const Tensor& v, const Tensor& g,
                          const Tensor& norms, cudaStream_t stream) {
  const std::int64_t rows = v.size(0), columns = v.numel() / rows;
  with_types(v.dtype(), dw.dtype(), [&]<class T, class W>(T, W) {
    weight_norm_backward_kernel<<<grid_of(rows), kNormThreads, 0, stream>>>(rows, columns, data<W>(dw), data<T>(v), data<T>(g),
                                                                            data<T>(norms), static_cast<T*>(dv.raw()),
                                                                            static_cast<T*>(dg.raw()));
  });
  check_launch("weight_norm_backward");
}

}  // namespace polyphase::cuda
