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
  // Distances in bytes from where an output is stored; 0: none. Tensors laid out like the output, whatever part of it a kernel
  // works on.
  std::int64_t residual = 0;  // to what `scale` times the activation is added to
  double scale = 1;
  std::int64_t before = 0;  // to where the activation's argument is kept

  /// Whether stores need more than apply() or activate().
  [[nodiscard]] constexpr bool is_late() const { return residual != 0 || before != 0; }
  /// Whether all but a residual is a few instructions a number.
  [[nodiscard]] constexpr bool is_light() const {
    return before == 0 && activation != Activation::tanh && activation != Activation::snake;
  }
  [[nodiscard]] constexpr bool is_needed() const { return activation != Activation::none || is_late(); }

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

  /// What lies `distance` bytes from an output's place.
  template <class T>
  static __device__ __forceinline__ T* beside(const T* to, std::int64_t distance) {
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(to) + static_cast<std::uintptr_t>(distance));
  }
  /// What is added to the output stored at `to`, for finish().
  template <class A, class T>
  __device__ __forceinline__ A added(const T* to) const {
    return residual != 0 ? static_cast<A>(*beside(to, residual)) : A(0);
  }
  /// The output for an activation's result of T's values and what is added to it.
  template <class T, class A>
  __device__ __forceinline__ T summed(A result, A other) const {
    return static_cast<T>(residual != 0 ? fma(static_cast<A>(scale), result, other) : result);
  }
  /// The output for `value`, a sum with its bias, and what is added to it.
  template <class T, class A>
  __device__ __forceinline__ T finished(A value, std::int64_t channel, A other) const {
    return summed<T>(static_cast<A>(static_cast<T>(activate<T>(value, channel))), other);
  }
  /// The same of the output that goes to `to`, its argument kept. `other` is added(to), read early so that many are under way.
  template <class T, class A>
  __device__ __forceinline__ T finish(A value, std::int64_t channel, T* to, A other) const {
    if (before != 0) *beside(to, before) = static_cast<T>(value);
    return finished<T>(value, channel, other);
  }
  template <class T, class A>
  __device__ __forceinline__ T finish(A value, std::int64_t channel, T* to) const {
    return finish<T>(value, channel, to, added<A>(to));
  }
#endif
};

#ifdef __CUDACC__
/// Finishes row[begin, begin + count) inside [0, length), sums of output channel `channel` that this thread has just stored:
/// its 16-byte vectors thread, thread + threads, ... from row + begin, which is aligned. So a kernel that writes such vectors
/// needs no registers for the epilogue, and what is read again is still in the L2 cache.
template <class A, class T>
__device__ __forceinline__ void finish_stored(const Epilogue& epilogue, T* row, std::int64_t length, std::int64_t begin,
                                              int count, std::int64_t channel, int thread, int threads) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  struct alignas(16) Pack {
    T at[kVector];
  };
  const bool whole = (epilogue.residual | epilogue.before) % 16 == 0;
  __syncwarp();  // nothing of the stores is left to come, whatever type they were of
#pragma unroll 1
  for (int e = thread * kVector; e < count; e += threads * kVector) {
    const std::int64_t at = begin + e;
    if (whole && at >= 0 && at + kVector <= length) {
      Pack* const to = reinterpret_cast<Pack*>(row + at);
      Pack pack = *to;
      const Pack other = epilogue.residual != 0 ? *Epilogue::beside(to, epilogue.residual) : pack;
      if (epilogue.before != 0) *Epilogue::beside(to, epilogue.before) = pack;
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        pack.at[i] = epilogue.finished<T>(static_cast<A>(pack.at[i]), channel, static_cast<A>(other.at[i]));
      *to = pack;
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < kVector; ++i) {
      T* const to = row + at + i;
      if (at + i >= 0 && at + i < length) *to = epilogue.finish<T>(static_cast<A>(*to), channel, to);
    }
  }
}
#endif

}  // namespace polyphase::cuda
