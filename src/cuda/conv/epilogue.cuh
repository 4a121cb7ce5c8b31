#pragma once
// What happens to a finished sum (bias already added) before it is stored: the functions of cuda/elementwise_functions.cuh,
// so that a fused activation has the bits of one that is launched by itself.

#include <cstdint>

#include "tensor/map_op.hpp"

namespace polyphase::cuda {

using polyphase::Activation;

#ifdef __CUDACC__
/// Not inlined: a kernel that finishes 64 sums would hold 64 copies.
template <class A>
__device__ __noinline__ A tanh_once(A value) {
  return tanh(value);
}
template <class A>
__device__ __noinline__ A snake_once(A value, A alpha, A beta) {
  const A s = sin(alpha * value);
  return value + s * s / beta;
}
#endif

struct Epilogue {
  Activation activation = Activation::none;
  double slope = 0;             // leaky_relu
  const void* alpha = nullptr;  // snake: (output channels), elements of the convolution's type
  const void* beta = nullptr;

#ifdef __CUDACC__
  /// All but snake, which needs its channel's parameters: activate().
  template <class A>
  __device__ __forceinline__ A apply(A value) const {
    switch (activation) {
      case Activation::relu:
        return value < A(0) ? A(0) : value;
      case Activation::leaky_relu:
        return value < A(0) ? A(slope) * value : value;
      case Activation::tanh:
        return tanh_once(value);
      default:
        return value;
    }
  }

  /// The value that apply() made `result` of; NaN where that cannot be told.
  __device__ __forceinline__ float undo(float result) const {
    if (activation == Activation::none) return result;
    if (activation != Activation::leaky_relu || !(slope > 0)) return __int_as_float(0x7fffffff);
    return result < 0.0F ? result / static_cast<float>(slope) : result;
  }

  /// `value` of output channel `channel`, rounded to the element type T first, as it would be in a tensor.
  template <class T, class A>
  __device__ __forceinline__ A activate(A value, std::int64_t channel) const {
    const A rounded = static_cast<A>(static_cast<T>(value));
    if (activation != Activation::snake) return apply(rounded);
    return snake_once(rounded, static_cast<A>(static_cast<const T*>(alpha)[channel]),
                      static_cast<A>(static_cast<const T*>(beta)[channel]));
  }
#endif
};

}  // namespace polyphase::cuda
